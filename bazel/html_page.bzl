"""A page of one file, as a string of C++."""

load("//bazel:cc.bzl", "cc_library")

def html_page(name, html, css, js, constant):
    """A library with `constant`, the page with its style and script inserted.

    Its header NAME.h declares `extern const char CONSTANT[]` in namespace ballast. The
    style goes after the line <style>, the script after the line <script>: a file,
    or a list of files, one after the other.
    """
    scripts = js if type(js) == "list" else [js]
    native.genrule(
        name = name + "_cc",
        srcs = [css, html] + scripts,
        outs = [
            name + ".cc",
            name + ".h",
        ],
        cmd = """(
printf '#include "%s/%s.h"\\n' '{package}' '{name}'
printf 'namespace ballast {{\\nconst char %s[] = R"ballast(' '{constant}'
sed -e '/^<style>$$/r $(location {css})' \\
    {scripts} $(location {html})
printf ')ballast";\\n}}  // namespace ballast\\n'
) > $(@D)/{name}.cc
printf '#pragma once\\nnamespace ballast {{\\nextern const char {constant}[];\\n}}\\n' \\
    > $(@D)/{name}.h""".format(
            package = native.package_name(),
            name = name,
            constant = constant,
            css = css,
            scripts = " ".join([
                "-e '/^<script>$$/r $(location %s)'" % script
                for script in scripts
            ]),
            html = html,
        ),
    )
    cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = [name + ".h"],
    )
