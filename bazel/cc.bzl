"""cc_library, cc_binary and cc_test that read the system's headers once, and link_only.

The system's headers are most of what a compilation of this project reads. These
macros include one precompiled header in every .cc file: bazel/system_headers.h, or
bazel/test_headers.h in tests. A file still includes what it needs. Whoever reads a
header is linked with its libraries: BUILD files name neither Abseil nor GoogleTest.

    bazel build --define=precompiled=0 //...

builds without either. A target with an -O among its copts is left out: GCC refuses
a header that was compiled with other options. Whatever is in tests/ is testonly.
"""

_HEADERS = "//bazel:precompiled"
_TEST_HEADERS = "//bazel:precompiled_for_tests"

def _precompiled(args, header, wanted):
    """`args` of a rule, with the options and the dependency that include `header`."""
    copts = args.pop("copts", [])
    srcs = args.get("srcs", [])
    if type(srcs) == "select":
        srcs = []
    suffixes = [src[src.rfind("."):] for src in srcs]
    optimised = [option for option in copts if option.startswith("-O")]
    if not wanted or optimised or ".cc" not in suffixes or ".c" in suffixes:
        return dict(args, copts = copts)
    include = ["-include", "$(BINDIR)/" + header[2:].replace(":", "/") + ".h", "-Winvalid-pch"]
    return dict(
        args,
        copts = copts + select({
            "//bazel:no_precompiled": [],
            "//conditions:default": include,
        }),
        deps = args.get("deps", []) + [header],
    )

def _in_tests(args):
    return dict(args, testonly = True) if native.package_name().startswith("tests/") else args

def cc_library(precompiled = True, **kwargs):
    """A native cc_library; `precompiled = False` leaves its files alone."""
    kwargs = _in_tests(kwargs)
    header = _TEST_HEADERS if kwargs.get("testonly") else _HEADERS
    native.cc_library(**_precompiled(kwargs, header, precompiled))

def cc_binary(precompiled = True, **kwargs):
    """A native cc_binary; `precompiled = False` leaves its files alone."""
    kwargs = _in_tests(kwargs)
    header = _TEST_HEADERS if kwargs.get("testonly") else _HEADERS
    native.cc_binary(**_precompiled(kwargs, header, precompiled))

def cc_test(precompiled = True, **kwargs):
    """A native cc_test; `precompiled = False` leaves its files alone."""
    native.cc_test(**_precompiled(kwargs, _TEST_HEADERS, precompiled))

def _link_only_impl(ctx):
    info = ctx.attr.library[CcInfo]
    return [
        CcInfo(linking_context = info.linking_context),
        DefaultInfo(files = ctx.attr.library[DefaultInfo].files),
    ]

# A library to link with whose headers and options stay its own. A cc_library passes
# the include paths of its dependencies on to everything that depends on it. (Later
# versions of Bazel call the way out implementation_deps.)
link_only = rule(
    implementation = _link_only_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
    provides = [CcInfo],
)
