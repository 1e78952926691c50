"""Why tests of distributed's do not pass with safeser's functions; none of it is unintended."""

#: Reasons, in the words of docs/reference/families.md.
WHY = {
    "pickle": "a pickle is read that nobody asked for, or holds code or a class that is not listed",
    "header": "looks into a header: its keys, the names of types, or by which family a value went",
    "codec": "uses distributed's codec of whole messages, of which safeser's comm has its own",
    "text": "expects the words of an error, among them what an object's own code said",
    "refused": "a value that is refused: an array in a file, an open file, objects in fields",
    "broadcast": "expects one element to stand for many that may be written apart",
    "registered": "registers a class with distributed's pickler, or one class twice",
}

_TESTS = {
    "pickle": """
        test_pickle.py::test_pickle_out_of_band
        test_pickle.py::test_pickle_empty
        test_pickle.py::test_pickle_data
        test_pickle.py::test_pickle_numpy
        test_pickle.py::test_pickle_functions
        test_pickle.py::test_pickle_zero_copy_read_only_flag
        test_serialize.py::test_serialize_bytes
        test_serialize.py::test_serialize_bytes_numpy
        test_serialize.py::test_serialize_lists
        """,
    "header": """
        test_collection.py::test_serialize_collection
        test_serialize.py::test_dumps_serialize
        test_serialize.py::test_serialize_bytestrings
        test_serialize.py::test_different_compression_families
        test_serialize.py::test_deserialize_memoryview
        """,
    "codec": """
        test_arrow.py::test_dumps_compression
        test_compression.py::test_compression_2
        test_compression.py::test_compression_without_deserialization
        test_compression.py::test_loads_without_deserialization_avoids_compression
        test_numpy.py::test_compress_numpy
        test_protocol.py::test_small
        test_protocol.py::test_large_bytes
        test_protocol.py::test_loads_deserialize_False
        test_protocol.py::test_dumps_loads_Serialize
        test_protocol.py::test_dumps_loads_Serialized
        test_protocol.py::test_sizeof_serialize
        test_protocol.py::test_fallback_to_pickle
        test_serialize.py::test_nested_deserialize
        test_serialize.py::test_err_on_bad_deserializer
        test_serialize.py::test_frame_split
        test_to_pickle.py::test_ToPickle
        """,
    "text": """
        test_protocol.py::test_deeply_nested_structures
        test_serialize.py::test_malicious_exception
        test_serialize.py::test_serialize_raises
        """,
    "refused": """
        test_arrow.py::test_dump_fileinfo
        test_netcdf4.py::test_serialize_deserialize_dataset
        test_netcdf4.py::test_serialize_deserialize_group
        test_netcdf4.py::test_serialize_deserialize_variable
        test_numpy.py::test_dumps_serialize_numpy
        test_numpy.py::test_serialize_numpy_ma_masked_array
        test_numpy.py::test_memmap
        """,
    "broadcast": """
        test_numpy.py::test_zero_strided_numpy_array
        test_numpy.py::test_serialize_writeable_array_readonly_base_object
        """,
    "registered": """
        test_pickle.py::test_allow_pickle_if_registered_in_dask_serialize
        test_pickle.py::test_nopickle_nested
        test_protocol.py::test_preserve_header
        """,
}

#: Reason by ``file::test``.
REASONS = {test: reason for reason, tests in _TESTS.items() for test in tests.split()}

#: They make views of a PickleBuffer, which CPython 3.11's garbage collector crashes on where a
#: cycle holds them, as the traceback of a failed test does. They count as failed.
NOT_RUN = frozenset(
    {"test_pickle.py::test_pickle_out_of_band", "test_pickle.py::test_pickle_empty"}
)
