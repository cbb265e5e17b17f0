"""link_only: a library to link with whose headers and options stay its own.

A cc_library passes the include paths of its dependencies on to everything that
depends on it. (Later versions of Bazel call the way out implementation_deps.)
"""

def _link_only_impl(ctx):
    info = ctx.attr.library[CcInfo]
    return [
        CcInfo(linking_context = info.linking_context),
        DefaultInfo(files = ctx.attr.library[DefaultInfo].files),
    ]

link_only = rule(
    implementation = _link_only_impl,
    attrs = {"library": attr.label(mandatory = True, providers = [CcInfo])},
    provides = [CcInfo],
)
