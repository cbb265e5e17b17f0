"""embedded_program: a program as bytes in a library.

common/embedded_program.h starts it.
"""

load("//bazel:cc.bzl", "cc_library")

def embedded_program(name, program, header, symbol, visibility = None):
    """A cc_library that holds the stripped program.

    Args:
      name: of the library.
      program: label of the cc_binary.
      header: this package's header that declares, in namespace ballast,
        `extern const unsigned char SYMBOL[]` and `extern const size_t
        SYMBOLBytes`.
      symbol: the name of the array.
    """
    native.genrule(
        name = name + "_source",
        srcs = [program],
        outs = [name + ".cc"],
        cmd = """
          strip -o $(@D)/{name}.stripped $(location {program}) &&
          {{
            echo '#include "{package}/{header}"'
            echo 'namespace ballast {{'
            echo 'extern const unsigned char {symbol}[] = {{'
            od -An -v -tx1 $(@D)/{name}.stripped | sed 's/ \\(..\\)/0x\\1,/g'
            echo '}};'
            echo 'extern const size_t {symbol}Bytes = sizeof({symbol});'
            echo '}}  // namespace ballast'
          }} > $@ &&
          rm $(@D)/{name}.stripped
        """.format(
            header = header,
            name = name,
            package = native.package_name(),
            program = program,
            symbol = symbol,
        ),
    )
    cc_library(
        name = name,
        srcs = [":" + name + "_source"],
        hdrs = [header],
        visibility = visibility,
    )
