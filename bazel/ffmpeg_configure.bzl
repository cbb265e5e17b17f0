"""Finds FFmpeg's libraries, made by deploy/ffmpeg.sh, and presents them as a repository.

The repository always exists, so that labels resolve. Its library is Debian's unless
BALLAST_FFMPEG=1 (--config=ffmpeg), as releases have it. FFMPEG_PATH names a place
outside ~/.local/share/ballast/ffmpeg.
"""

_BUILD_OWN = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
)

# Static: nothing has to be found where the server is installed.
cc_library(
    name = "ffmpeg",
    srcs = [
        "lib/libavformat.a",
        "lib/libavcodec.a",
        "lib/libswscale.a",
        "lib/libavutil.a",
    ],
    linkopts = [
        "-ldav1d",
        "-lz",
        "-lm",
    ],
    deps = [":headers"],
)
"""

_BUILD_DEBIAN = """
# Debian's FFmpeg: see bazel/ffmpeg_configure.bzl.
package(default_visibility = ["//visibility:public"])

# In the compiler's default path.
cc_library(name = "headers")

cc_library(
    name = "ffmpeg",
    linkopts = [
        "-lavformat",
        "-lavcodec",
        "-lswscale",
        "-lavutil",
    ],
)
"""

def _ffmpeg_configure_impl(ctx):
    home = ctx.os.environ.get("HOME", "/nonexistent") + "/.local/share/ballast/ffmpeg"
    root = ctx.os.environ.get("FFMPEG_PATH", "") or home
    if ctx.os.environ.get("BALLAST_FFMPEG", "0") != "1":
        ctx.file("BUILD.bazel", _BUILD_DEBIAN)
        return
    if not ctx.path(root + "/lib/libavcodec.a").exists:
        fail("BALLAST_FFMPEG=1, but there is no {}/lib/libavcodec.a; ".format(root) +
             "run deploy/ffmpeg.sh, or set FFMPEG_PATH")
    ctx.symlink(root + "/include", "include")
    ctx.symlink(root + "/lib", "lib")
    ctx.file("BUILD.bazel", _BUILD_OWN)

ffmpeg_configure = repository_rule(
    implementation = _ffmpeg_configure_impl,
    environ = ["BALLAST_FFMPEG", "FFMPEG_PATH", "HOME"],
    local = True,
)
