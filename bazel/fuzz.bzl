"""ballast_fuzz: a fuzz target, run for a bounded time among the tests.

The sources define LLVMFuzzerTestOneInput, as libFuzzer wants it, and nothing
else of its main program.

    bazel test //tests/fuzz:NAME                  # a fixed sequence of mutations
    bazel test --config=asan //tests/fuzz:NAME    # the same, with AddressSanitizer
    bazel test --config=fuzz //tests/fuzz:NAME    # libFuzzer and AddressSanitizer
    bazel run --config=fuzz //tests/fuzz:NAME -- -runs=-1 -max_total_time=600 DIR

The last goes on for ten minutes and keeps what it finds interesting in DIR.
`--config=fuzz` needs clang.
"""

load("//bazel:cc.bzl", "cc_test")

def ballast_fuzz(name, deps, seeds, runs = 4000, max_len = 65536, size = "small", srcs = None, **kwargs):
    """A cc_test.

    Args:
      srcs: NAME.cc unless given.
      seeds: label of the files that mutation starts from.
      runs: how many inputs are tried; about ten seconds' worth under a
        sanitizer.
      max_len: of an input, in bytes.
    """
    native.genrule(
        name = name + "_seeds",
        testonly = True,
        srcs = [seeds],
        outs = [name + "_seeds.txt"],
        cmd = "echo $(rootpaths %s) | tr ' ' ',' > $@" % seeds,
    )
    cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        args = [
            "-seed=1",
            "-runs=%d" % runs,
            "-max_total_time=40",
            "-max_len=%d" % max_len,
            "-seed_inputs=@%s/%s_seeds.txt" % (native.package_name(), name),
        ],
        data = [
            seeds,
            name + "_seeds.txt",
        ],
        linkopts = select({
            "//bazel:libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        tags = ["fuzz"],
        deps = deps + select({
            "//bazel:libfuzzer": [],
            "//conditions:default": ["//tests/fuzz:mutation_driver"],
        }),
        **kwargs
    )
