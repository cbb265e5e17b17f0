"""precompiled_header: the compiler's form of headers that have been read once.

cc.bzl has every compilation read one.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _as_header(file, deps):
    """What a dependency passes on: one more input of compilations, and libraries."""
    header = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([file]),
    ))
    return [
        DefaultInfo(files = depset([file])),
        cc_common.merge_cc_infos(direct_cc_infos = [header] + [dep[CcInfo] for dep in deps]),
    ]

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".all.h")
    ctx.actions.run_shell(
        command = 'exec python3 "$@"',
        arguments = [ctx.file._expand.path, header.path] +
                    [file.path for file in ctx.files.srcs] + ["--"] +
                    [file.path for file in ctx.files.generated],
        inputs = [ctx.file._expand] + ctx.files.srcs + ctx.files.generated,
        outputs = [header],
        mnemonic = "ExpandHeaders",
    )

    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    tool = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    )
    # A header that was compiled with other options is refused, so they are the ones
    # of a .cc file; .bazelrc has every file compiled with -fPIC (--force_pic).
    options = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            cc_toolchain = toolchain,
            feature_configuration = features,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
            use_pic = True,
        ),
    )

    # Only the compiled form has the name that `-include` gives. Without it the
    # compilation fails; it never falls back to reading the headers.
    output = ctx.actions.declare_file(
        ctx.label.name + (".h.pch" if "clang" in tool else ".h.gch"),
    )
    source = header.path
    if "clang" in tool:
        # Clang's form names the file that it was made of, and a sandbox gives that
        # file another path each time: so it reads the header from its input, which
        # GCC refuses.
        source = "-"
        options = options + ["-fpch-instantiate-templates", "-Xclang", "-fno-pch-timestamp"]
    ctx.actions.run_shell(
        command = 'header=$1 && shift && exec "$@" < "$header"',
        arguments = [header.path, tool] + options +
                    ["-x", "c++-header", "-c", source, "-o", output.path],
        inputs = depset([header], transitive = [toolchain.all_files]),
        outputs = [output],
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling " + ctx.label.name,
    )
    return _as_header(output, ctx.attr.deps)

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        # Headers that include system headers and `generated`, in order.
        "srcs": attr.label_list(allow_files = [".h"], mandatory = True),
        "generated": attr.label_list(allow_files = True),
        # The libraries of these headers.
        "deps": attr.label_list(providers = [CcInfo]),
        "_expand": attr.label(default = "//bazel:expand_headers.py", allow_single_file = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
