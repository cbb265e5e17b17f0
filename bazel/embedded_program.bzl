"""Files that a library holds: embedded_program, a program as bytes, which
common/helper_process.h starts, html_page, a page as a string, and
embedded_textprotos, the names and texts of a folder's files.
"""

load("//bazel:cc.bzl", "cc_library")

def embedded_program(name, program, symbol, is_text = False, visibility = None):
    """A cc_library that holds the stripped program, or a program's text.

    Its header NAME.h declares, in namespace ballast, `extern const unsigned char
    SYMBOL[]` and `extern const size_t SYMBOLBytes`.

    Args:
      name: of the library.
      program: label of the cc_binary, or of the text.
      symbol: the name of the array.
      is_text: whether the program is a text, which has no symbols to strip.
      visibility: of the library.
    """
    native.genrule(
        name = name + "_source",
        srcs = [program],
        outs = [name + ".cc"],
        cmd = """
          {strip} $(@D)/{name}.stripped &&
          {{
            echo '#include "{package}/{name}.h"'
            echo 'namespace ballast {{'
            echo 'extern const unsigned char {symbol}[] = {{'
            od -An -v -tx1 $(@D)/{name}.stripped | sed 's/ \\(..\\)/0x\\1,/g'
            echo '}};'
            echo 'extern const size_t {symbol}Bytes = sizeof({symbol});'
            echo '}}  // namespace ballast'
          }} > $@ &&
          rm $(@D)/{name}.stripped
        """.format(
            name = name,
            package = native.package_name(),
            strip = ("cp $(location {})" if is_text else "strip $(location {}) -o").format(program),
            symbol = symbol,
        ),
    )
    native.genrule(
        name = name + "_header",
        outs = [name + ".h"],
        cmd = """
          {{
            echo '#pragma once'
            echo '#include <cstddef>'
            echo 'namespace ballast {{'
            echo 'extern const unsigned char {symbol}[];'
            echo 'extern const size_t {symbol}Bytes;'
            echo '}}  // namespace ballast'
          }} > $@
        """.format(symbol = symbol),
    )
    cc_library(
        name = name,
        srcs = [":" + name + "_source"],
        hdrs = [":" + name + "_header"],
        visibility = visibility,
    )

def embedded_textprotos(name, visibility):
    """NAME.inc: {"FILE", "TEXT"}, for each *.textproto of the folder."""
    native.genrule(
        name = name,
        srcs = native.glob(["*.textproto"]),
        outs = [name + ".inc"],
        cmd = "for f in $(SRCS); do " +
              "n=$${f##*/}; printf '{\"%s\", R\"TEXTPROTO(' $${n%.textproto}; cat $$f; printf ')TEXTPROTO\"},\\n'; " +
              "done > $@",
        visibility = visibility,
    )

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
