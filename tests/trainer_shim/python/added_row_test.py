"""A row that is added to the table of tensors is in the C interface and in Python."""

import ctypes
import os
import unittest

# Before the package loads its library.
os.environ["BALLAST_LIBRARY"] = "tests/trainer_shim/python/libshim_with_row.so"

import ballast  # noqa: E402
import numpy  # noqa: E402
from ballast import _abi, _structs  # noqa: E402

from tests.harness import tools  # noqa: E402


class AddedRowTest(tools.TwoServersTest):
    def test_python(self):
        with self.direct() as loader:
            for batch in loader:
                numpy.testing.assert_array_equal(batch["ends"], batch["cu_seqlens"][1:])
                numpy.testing.assert_array_equal(batch["ends_host"], batch["ends"])
                self.assertEqual(batch["ends"].dtype, numpy.int32)
        with self.direct("vision") as loader:
            self.assertNotIn("ends", next(loader))

    def test_table(self):
        rows = ballast.tensor_table()
        self.assertEqual(rows[0].name, "input_ids")
        self.assertEqual(
            rows[-1],
            ballast.TensorRow(
                name="ends",
                dtype="int32",
                shape="[n]",
                receivers="language, every stage",
                joins="items",
                memory="listed",
                contents="the sum of the real lengths up to each sample",
            ),
        )

    def test_c_interface(self):
        find = _abi.library().ballast_batch_find_tensor
        find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(_structs.Tensor)]
        with self.direct() as loader:
            batch = next(loader)
            handle = batch._parts[0]._handle
            tensor = _structs.sized(_structs.Tensor)
            _abi.check(find(handle, b"ends", tensor))
            self.assertEqual(tensor.ndim, 1)
            self.assertEqual(tensor.shape[0], len(batch.samples))
            values = (ctypes.c_int32 * tensor.shape[0]).from_address(tensor.data)
            self.assertEqual(list(values), batch["cu_seqlens"][1:].tolist())
            with self.assertRaisesRegex(ballast.NotFound, "no tensor end; it has input_ids, "):
                _abi.check(find(handle, b"end", tensor))


if __name__ == "__main__":
    unittest.main()
