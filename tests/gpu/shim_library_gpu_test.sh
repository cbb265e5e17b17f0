#!/usr/bin/env bash
# The installed library in a process with PyTorch, which brings another
# protobuf, perhaps another gRPC, and its own NCCL: the shim uses that NCCL.
set -euo pipefail
readonly shim=$(cd "$(dirname "$0")/../shim" && pwd)

python3 - "$shim/lib/libballast_shim.so" <<'PYTHON'
import ctypes, re, sys

try:
    import torch
    assert torch.ones(2, device="cuda").sum().item() == 2
    import torch.distributed  # loads NCCL
except ImportError:
    torch = None
    print("NOT RUN beside PyTorch: python3 has none")
lib = ctypes.CDLL(sys.argv[1])
lib.ballast_last_error.restype = ctypes.c_char_p
assert lib.ballast_abi_version() == 1
assert lib.ballast_has_backend(2) == 1
ident = (ctypes.c_char * 128)()
assert lib.ballast_nccl_id(ident) == 0, lib.ballast_last_error()
assert bytes(ident).strip(b"\0")
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
nccl = [path for path in mapped if re.search(r"libnccl\.so", path)]
assert len(nccl) == 1, nccl
print("NCCL:", nccl[0])
if torch is not None:
    assert "libprotobuf.so.32" in " ".join(mapped)
    assert torch.ones(2, device="cuda").sum().item() == 2
PYTHON
