"""What distributed's own tests of clusters do on ``tcp://``, with distributed 2026.8.0.

Not counted are tests that are skipped (slow, for a package that is not there, or for good) or
expected to fail, and ``test_bad_address``, whose result depends on what the network makes of an
address that nobody has. They are from the tests' own marks, and from a run for those that skip
themselves.
"""

from __future__ import annotations

#: How many tests of each file are counted.
PASSED = {
    "tests/test_client.py": 457,
    "tests/test_actor.py": 45,
    "tests/test_queues.py": 16,
    "tests/test_variable.py": 17,
    "tests/test_security.py": 30,
    "shuffle/tests/test_buffer.py": 5,
    "shuffle/tests/test_comm_buffer.py": 5,
    "shuffle/tests/test_core.py": 2,
    "shuffle/tests/test_disk_buffer.py": 7,
    "shuffle/tests/test_graph.py": 8,
    "shuffle/tests/test_limiter.py": 5,
    "shuffle/tests/test_memory_buffer.py": 5,
    "shuffle/tests/test_merge.py": 24,
    "shuffle/tests/test_merge_column_and_index.py": 48,
    "shuffle/tests/test_metrics.py": 2,
    "shuffle/tests/test_pickle.py": 3,
    "shuffle/tests/test_read_write_lock.py": 7,
    "shuffle/tests/test_rechunk.py": 137,
    "shuffle/tests/test_shuffle.py": 182,
    "shuffle/tests/test_shuffle_plugins.py": 2,
}

_NOT_COUNTED = """
    tests/test_client.py::test_long_tasks_dont_trigger_timeout
    tests/test_client.py::test_upload_file_egg
    tests/test_client.py::test_multiple_clients
    tests/test_client.py::test_bad_address
    tests/test_client.py::test_badly_serialized_input_stderr
    tests/test_client.py::test_balance_tasks_by_stacks
    tests/test_client.py::test_contiguous_load
    tests/test_client.py::test_bad_tasks_fail
    tests/test_client.py::test_reconnect
    tests/test_client.py::test_open_close_many_workers[Worker-100-5]
    tests/test_client.py::test_open_close_many_workers[Nanny-10-20]
    tests/test_client.py::test_get_versions_sync
    tests/test_client.py::test_normalize_collection_with_released_futures
    tests/test_client.py::test_interleave_computations_map
    tests/test_client.py::test_client_timeout
    tests/test_client.py::test_restart_workers
    tests/test_client.py::test_restart_workers_kill_timeout[True]
    tests/test_client.py::test_restart_workers_kill_timeout[False]
    tests/test_client.py::test_restart_workers_restart_timeout[True]
    tests/test_client.py::test_restart_workers_restart_timeout[False]
    tests/test_client.py::test_restart_workers_exception
    tests/test_client.py::test_restart_workers_by_name[True]
    tests/test_client.py::test_restart_workers_by_name[False]
    tests/test_client.py::test_quiet_client_close_when_cluster_is_closed_before_client
    tests/test_client.py::test_threadsafe_get
    tests/test_client.py::test_threadsafe_compute
    tests/test_client.py::test_dynamic_workloads_sync_random
    tests/test_client.py::test_profile
    tests/test_client.py::test_nested_compute
    tests/test_client.py::test_quiet_scheduler_loss
    tests/test_client.py::test_client_repr_closed_sync
    tests/test_client.py::test_nested_prioritization
    tests/test_client.py::test_no_threads_lingering
    tests/test_client.py::test_profile_bokeh
    tests/test_client.py::test_file_descriptors_dont_leak[Nanny]
    tests/test_client.py::test_profile_server
    tests/test_client.py::test_dont_hold_on_to_large_messages
    tests/test_client.py::test_performance_report[True]
    tests/test_client.py::test_performance_report[False]
    tests/test_client.py::test_mixed_compression
    tests/test_client.py::test_annotations_survive_optimization
    tests/test_client.py::test_computation_ignore_ipython_frames[2]
    tests/test_client.py::test_computation_ignore_ipython_frames[3]
    tests/test_client.py::test_computation_object_code_not_available
    tests/test_client.py::test_benchmark_hardware
    tests/test_client.py::test_quiet_close_process[True]
    tests/test_client.py::test_quiet_close_process[False]
    tests/test_client.py::test_scheduler_restart_exception_on_cancelled_futures
    tests/test_client.py::test_submit_persisted_collection_as_argument[True]
    tests/test_client.py::test_submit_persisted_collection_as_argument[False]
    tests/test_client.py::test_worker_clients_do_not_claim_ownership_of_serialize_futures[True-True]
    tests/test_client.py::test_worker_clients_do_not_claim_ownership_of_serialize_futures[False-True]
    tests/test_actor.py::test_linear_access
    tests/test_actor.py::test_actors_in_profile
    tests/test_queues.py::test_race
    tests/test_variable.py::test_race
    shuffle/tests/test_graph.py::test_raise_on_custom_objects
    shuffle/tests/test_merge.py::test_merge_by_multiple_columns[inner]
    shuffle/tests/test_merge.py::test_merge_by_multiple_columns[outer]
    shuffle/tests/test_merge.py::test_merge_by_multiple_columns[left]
    shuffle/tests/test_merge.py::test_merge_by_multiple_columns[right]
    shuffle/tests/test_rechunk.py::test_partial_rechunk_homogeneous_distribution
    shuffle/tests/test_shuffle.py::test_basic_cudf_support
    shuffle/tests/test_shuffle.py::test_crashed_worker_during_transfer
    shuffle/tests/test_shuffle.py::test_closed_input_only_worker_during_transfer
    shuffle/tests/test_shuffle.py::test_crashed_input_only_worker_during_transfer
    shuffle/tests/test_shuffle.py::test_crashed_other_worker_during_barrier
    shuffle/tests/test_shuffle.py::test_crashed_worker_during_unpack
    shuffle/tests/test_shuffle.py::test_clean_after_close
    shuffle/tests/test_shuffle.py::test_handle_null_partitions_2
    shuffle/tests/test_shuffle.py::test_flaky_broadcast[failures0-None]
    shuffle/tests/test_shuffle.py::test_flaky_broadcast[failures1-None]
    shuffle/tests/test_shuffle.py::test_flaky_broadcast[failures2-RuntimeError]
    shuffle/tests/test_shuffle.py::test_flaky_broadcast[failures3-None]
    shuffle/tests/test_shuffle.py::test_flaky_broadcast[failures4-RuntimeError]
    shuffle/tests/test_shuffle.py::test_flaky_broadcast[failures5-RuntimeError]
    shuffle/tests/test_shuffle.py::test_flaky_broadcast[failures6-RuntimeError]
"""

#: Ids of tests that are not.
NOT_COUNTED = frozenset(_NOT_COUNTED.split())
