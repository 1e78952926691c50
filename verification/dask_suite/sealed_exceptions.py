"""Which tests of clients and actors fail where graphs are sealed, beside those of exceptions.py."""

#: Reasons, in the words of docs/explanation/dask-suite.md.
WHY = {
    "client": "need a client of Dask's own, fail with safeser.Client under `code` too",
    "scheduler": "call functions, plugins or files on the scheduler, which opens nothing",
    "class": "expect objects or keys of their own classes, which travel as data or not at all",
    "other": "plant a value, or submit by a client of Dask's own",
}

_TESTS = {
    "client": """
        tests/test_client.py::TestClientSecurityLoader::test_security_loader_import_failed
        tests/test_client.py::test_async_with
        tests/test_client.py::test_client_async_before_loop_starts
        tests/test_client.py::test_client_timeout_2
        tests/test_client.py::test_computation_code_walk_frames
        tests/test_client.py::test_computation_object_code_client_compute
        tests/test_client.py::test_computation_object_code_client_map
        tests/test_client.py::test_computation_object_code_client_submit_dict_comp
        tests/test_client.py::test_computation_object_code_client_submit_list_comp
        tests/test_client.py::test_computation_object_code_client_submit_simple
        tests/test_client.py::test_computation_object_code_dask_compute
        tests/test_client.py::test_computation_object_code_dask_persist
        tests/test_client.py::test_config_scheduler_address
        tests/test_client.py::test_dashboard_link_inproc
        tests/test_client.py::test_ensure_default_client
        tests/test_client.py::test_get_client_functions_spawn_clusters
        tests/test_client.py::test_quiet_client_close
        tests/test_client.py::test_rebalance_sync
        tests/test_client.py::test_repr[repr]
        tests/test_client.py::test_repr[str]
        tests/test_client.py::test_repr_localcluster
        tests/test_client.py::test_scatter_collection_subclass
        """,
    "scheduler": """
        tests/test_client.py::test_computation_object_code_dask_compute_no_frames_default
        tests/test_client.py::test_direct_to_workers
        tests/test_client.py::test_dump_cluster_state_async[msgpack-False]
        tests/test_client.py::test_dump_cluster_state_async[yaml-False]
        tests/test_client.py::test_dump_cluster_state_json[False]
        tests/test_client.py::test_dump_cluster_state_sync[msgpack-False]
        tests/test_client.py::test_dump_cluster_state_sync[yaml-False]
        tests/test_client.py::test_dump_cluster_state_write_from_scheduler
        tests/test_client.py::test_profile_server_disabled
        tests/test_client.py::test_release_persisted_collection_sync
        tests/test_client.py::test_run_handles_picklable_data
        tests/test_client.py::test_run_on_scheduler_async_def
        tests/test_client.py::test_run_on_scheduler_async_def_wait
        tests/test_client.py::test_turn_off_pickle[False]
        tests/test_client.py::test_turn_off_pickle[True]
        tests/test_client.py::test_upload_directory
        tests/test_client.py::test_upload_directory_to_scheduler[all]
        tests/test_client.py::test_upload_directory_to_scheduler[scheduler]
        tests/test_client.py::test_upload_file
        tests/test_client.py::test_upload_file_load
        """,
    "class": """
        tests/test_actor.py::test_exception
        tests/test_actor.py::test_exception_async
        tests/test_actor.py::test_serialize_with_pickle
        tests/test_client.py::test_future_type
        tests/test_client.py::test_replicate_tree_branching
        tests/test_client.py::test_resolves_future_in_namedtuple[NewArgsExNamedTuple-args2-kwargs2]
        tests/test_client.py::test_resolves_future_in_namedtuple[NewArgsNamedTuple-args1-kwargs1]
        tests/test_client.py::test_resolves_future_in_namedtuple[PlainNamedTuple-args0-kwargs0]
        tests/test_client.py::test_robust_undeserializable
        tests/test_client.py::test_robust_undeserializable_function
        tests/test_client.py::test_robust_unserializable
        tests/test_client.py::test_run_exception
        tests/test_client.py::test_scatter_tokenize_local
        tests/test_client.py::test_tuple_keys
        tests/test_client.py::test_unpacks_remotedata_namedtuple[NewArgsExNamedTuple-args2-kwargs2]
        tests/test_client.py::test_unpacks_remotedata_namedtuple[NewArgsNamedTuple-args1-kwargs1]
        tests/test_client.py::test_unpacks_remotedata_namedtuple[PlainNamedTuple-args0-kwargs0]
        """,
    "other": """
        tests/test_client.py::test_cleanup_after_broken_client_connection
        tests/test_client.py::test_gather_race_vs_AMM[False]
        tests/test_client.py::test_gather_race_vs_AMM[True]
        """,
}

#: Reason by id.
SEALED = {test: reason for reason, tests in _TESTS.items() for test in tests.split()}
