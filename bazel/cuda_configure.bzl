"""Finds the CUDA toolkit and presents it as a repository.

The repository always exists, so that labels resolve; without a toolkit it says
`cuda_available() == False` and the macros of //bazel:cuda.bzl define nothing.

BALLAST_CUDA=0 ignores a toolkit that is there; BALLAST_CUDA=1 makes its
absence an error. CUDA_PATH names a toolkit outside /usr/local/cuda.
"""

_BUILD_WITH_CUDA = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "cuda_headers",
    # Headers for host code. Most of CCCL's 1,700 headers are left out: only nvcc
    # needs them, and it finds its own. CUDA's headers for 16-bit numbers include
    # nv/target, which CUDA 13 keeps in include/cccl.
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/cccl/nv/**",
        "include/crt/**",
        "include/nccl_device/**",
        "include/nv/**",
    ]),
    includes = [
        "include",
        "include/cccl",
    ],
)

cc_library(
    name = "cudart",
    # Static, so that programs also run without CUDA installed; the driver is
    # loaded by name. So is NCCL, of which only the header is used
    # (trainer_shim/cuda/nccl_api.h).
    linkopts = [
        "-L{root}/lib64",
        "-lcudart_static",
        "-ldl",
        "-lrt",
        "-lpthread",
    ],
    deps = [":cuda_headers"],
)

cc_library(
    name = "cublas",
    linkopts = ["-L{root}/lib64", "-lcublas"],
    deps = [":cudart"],
)
"""

_BUILD_WITHOUT_CUDA = """
# No CUDA toolkit was found: see bazel/cuda_configure.bzl.
package(default_visibility = ["//visibility:public"])
"""

def _cuda_configure_impl(ctx):
    wanted = ctx.os.environ.get("BALLAST_CUDA", "auto")
    root = ctx.os.environ.get("CUDA_PATH", "/usr/local/cuda")
    found = wanted != "0" and ctx.path(root + "/bin/nvcc").exists
    if wanted == "1" and not found:
        fail("BALLAST_CUDA=1, but there is no {}/bin/nvcc; set CUDA_PATH".format(root))
    if found:
        # The resolved path has the version, so that a link to another toolkit
        # rebuilds nvcc's outputs.
        root = str(ctx.path(root).realpath)
        ctx.symlink(root + "/include", "include")
        ctx.file("BUILD.bazel", _BUILD_WITH_CUDA.format(root = root))
    else:
        ctx.file("BUILD.bazel", _BUILD_WITHOUT_CUDA)
    ctx.file("defs.bzl", """
CUDA_ROOT = "{}"

def cuda_available():
    return {}
""".format(root if found else "", found))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["BALLAST_CUDA", "CUDA_PATH"],
    local = True,
)
