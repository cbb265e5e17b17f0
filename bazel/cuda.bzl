"""cuda_library: CUDA sources compiled by nvcc into a cc_library.

Device code for sm_80 and sm_90, and PTX for newer devices. Where no toolkit is
found the macro defines nothing, so only targets that are themselves guarded by
`cuda_available()` may depend on one.
"""

load("@local_cuda//:defs.bzl", _CUDA_ROOT = "CUDA_ROOT", _available = "cuda_available")

cuda_available = _available

_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
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
        arguments.add_all(["-c", "-O3", "-std=c++17", "-lineinfo", "-Xcompiler", "-fPIC,-Wall"])
        arguments.add_all(_ARCHITECTURES)
        arguments.add_all(["-I", ".", "-I", ctx.bin_dir.path])
        arguments.add("-o", obj)
        arguments.add(src)
        ctx.actions.run(
            executable = _CUDA_ROOT + "/bin/nvcc",
            arguments = [arguments],
            inputs = depset([src] + ctx.files.hdrs, transitive = [headers]),
            outputs = [obj],
            env = {"PATH": _CUDA_ROOT + "/bin:/usr/bin:/bin"},
            mnemonic = "Nvcc",
            progress_message = "Compiling CUDA %{input}",
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
    """A cc_library whose sources are CUDA; absent without a toolkit."""
    if not cuda_available():
        return
    _cuda_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [":" + name + "_objects"],
        hdrs = hdrs,
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )
