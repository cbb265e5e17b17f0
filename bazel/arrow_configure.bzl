"""Finds Arrow C++, unpacked by deploy/setup.sh, and presents it as a repository.

The repository always exists, so that labels resolve; without Arrow it says
`arrow_available() == False`, its library is empty, and Parquet is refused by name.

BALLAST_ARROW=0 ignores an Arrow that is there; BALLAST_ARROW=1 makes its absence an
error. ARROW_PATH names a place outside ~/.local/share/ballast/arrow.
"""

_BUILD_WITH_ARROW = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "arrow",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    # The wheel has no links without a version. Programs find the libraries where
    # they were unpacked; deploy/package.sh ships copies.
    linkopts = [
        "-L{root}/pyarrow",
        "-l:{arrow_s3}",
        "-l:{parquet}",
        "-l:{arrow}",
        "-Wl,-rpath,{root}/pyarrow",
    ],
)
"""

_BUILD_WITHOUT_ARROW = """
# No Arrow was found: see bazel/arrow_configure.bzl.
package(default_visibility = ["//visibility:public"])

cc_library(name = "arrow")
"""

def _library(folder, prefix):
    for file in folder.readdir():
        if file.basename.startswith(prefix + ".so."):
            return file.basename
    return None

def _arrow_configure_impl(ctx):
    wanted = ctx.os.environ.get("BALLAST_ARROW", "auto")
    home = ctx.os.environ.get("HOME", "/nonexistent") + "/.local/share/ballast/arrow"
    root = ctx.os.environ.get("ARROW_PATH", "") or home
    found = wanted != "0" and ctx.path(root + "/pyarrow/include/parquet").exists
    if wanted == "1" and not found:
        fail("BALLAST_ARROW=1, but there is no {}/pyarrow/include/parquet; ".format(root) +
             "run deploy/setup.sh, or set ARROW_PATH")
    if found:
        root = str(ctx.path(root).realpath)
        folder = ctx.path(root + "/pyarrow")
        ctx.symlink(root + "/pyarrow/include", "include")
        ctx.file("BUILD.bazel", _BUILD_WITH_ARROW.format(
            root = root,
            arrow = _library(folder, "libarrow"),
            arrow_s3 = _library(folder, "libarrow_s3"),
            parquet = _library(folder, "libparquet"),
        ))
    else:
        ctx.file("BUILD.bazel", _BUILD_WITHOUT_ARROW)
    ctx.file("defs.bzl", """
# The folder that holds the Python package pyarrow.
ARROW_ROOT = "{}"

def arrow_available():
    return {}
""".format(root if found else "", found))

arrow_configure = repository_rule(
    implementation = _arrow_configure_impl,
    environ = ["ARROW_PATH", "BALLAST_ARROW", "HOME"],
    local = True,
)
