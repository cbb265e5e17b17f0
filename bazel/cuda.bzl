"""CUDA sources, and tests that need a GPU.

Device code for sm_80 and sm_90, and PTX for newer devices. Where no toolkit is
found the macros define nothing, so only targets that are themselves guarded by
`cuda_available()` may depend on theirs.
"""

load("//bazel:cc.bzl", "cc_binary", "cc_library", "cc_test")
load("@local_cuda//:defs.bzl", _CUDA_ROOT = "CUDA_ROOT", _available = "cuda_available")

cuda_available = _available

_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
]

# Without -lineinfo, which keeps the sandbox's path and the times of files: a
# release has the same bytes wherever it is made.
_OPTIONS = [
    "-c",
    "-O3",
    "-std=c++20",
    "-Werror=all-warnings",
    # The same options as for all other sources (.bazelrc).
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-ffp-contract=off,-fno-strict-aliasing",
]

def _cuda_objects_impl(ctx):
    headers = depset(transitive = [
        dep[CcInfo].compilation_context.headers
        for dep in ctx.attr.deps
    ])
    objects = []
    for src in ctx.files.srcs:
        obj = ctx.actions.declare_file("_nvcc/" + src.basename + ".o")
        objects.append(obj)
        arguments = ctx.actions.args()
        arguments.add_all(_OPTIONS + _ARCHITECTURES)
        arguments.add_all(["-I", ".", "-I", ctx.bin_dir.path])
        # nvcc names what is in an unnamed namespace, or static in a header, by the
        # path of the source, which is another in each checkout.
        arguments.add("-Xcudafe")
        arguments.add(src, format = "--orig_src_path_name %s")
        # Kept files have names of their own, others the process's number, which
        # symbols repeat.
        arguments.add_all(["-keep", "-keep-dir", obj.dirname])
        arguments.add("-o", obj)
        arguments.add(src)
        ctx.actions.run(
            executable = _CUDA_ROOT + "/bin/nvcc",
            arguments = [arguments],
            inputs = depset([src] + ctx.files.hdrs, transitive = [headers]),
            outputs = [obj],
            env = {"PATH": _CUDA_ROOT + "/bin:/usr/bin:/bin"},
            mnemonic = "Nvcc",
            progress_message = "Compiling CUDA " + src.short_path,
        )
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A cc_library that uses CUDA; absent without a toolkit.

    Args:
      name: of the cc_library.
      srcs: .cu files are compiled by nvcc, others as in a cc_library.
      hdrs: as in a cc_library. Those included by .cc files need a host compiler
        and the toolkit's headers, nothing more.
      deps: as in a cc_library; the CUDA runtime is added.
      **kwargs: passed on to the cc_library.
    """
    if not cuda_available():
        return
    device_srcs = [src for src in srcs if src.endswith(".cu")]
    host_srcs = [src for src in srcs if not src.endswith(".cu")]
    if device_srcs:
        _cuda_objects(
            name = name + "_objects",
            srcs = device_srcs,
            hdrs = hdrs,
            deps = deps,
            visibility = ["//visibility:private"],
        )
        host_srcs.append(":" + name + "_objects")
    cc_library(
        name = name,
        srcs = host_srcs,
        hdrs = hdrs,
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )

def cuda_test(name, srcs, deps, **kwargs):
    """A cc_test that needs CUDA but no GPU; absent without a toolkit.

    Args:
      name: of the cc_test.
      srcs: as in a cc_test.
      deps: as in a cc_test; the CUDA runtime is added.
      **kwargs: passed on to the cc_test.
    """
    if not cuda_available():
        return
    cc_test(
        name = name,
        srcs = srcs,
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )

def gpu_test(name, srcs, deps, **kwargs):
    """A cc_test that needs a GPU; absent without a toolkit.

    `bazel test //...` neither builds nor runs it: without a GPU it fails, never
    passes. tests/gpu/run.sh builds it and runs it where there is one.
    """
    if not cuda_available():
        return
    cc_test(
        name = name,
        srcs = srcs,
        tags = ["gpu", "local", "manual"],
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )

def gpu_benchmark(name, srcs, deps):
    """A binary that measures on a GPU; otherwise like gpu_test."""
    if not cuda_available():
        return
    cc_binary(
        name = name,
        srcs = srcs,
        tags = ["benchmark", "gpu", "manual"],
        deps = deps + ["@local_cuda//:cudart"],
    )
