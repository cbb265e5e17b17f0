"""ballast_benchmark: a Google Benchmark binary and its smoke test.

    bazel run --config=opt //tests/benchmarks:NAME

measures; the test NAME_smoke_test runs every benchmark for an instant, so that
none rots, except those whose names match `measured_only`: sizes of minutes beside
smaller ones of the same code.
"""

load("//bazel:cc.bzl", "cc_binary", "cc_test")

def ballast_benchmark(name, srcs, deps, data = [], measured_only = None, size = "small"):
    cc_binary(
        name = name,
        srcs = srcs,
        data = data,
        tags = ["benchmark"],
        deps = deps + ["//third_party:benchmark"],
    )
    cc_test(
        name = name + "_smoke_test",
        size = size,
        srcs = srcs,
        args = ["--benchmark_min_time=0"] + (
            ["--benchmark_filter=-" + measured_only] if measured_only else []
        ),
        data = data,
        tags = ["benchmark"],
        deps = deps + ["//third_party:benchmark"],
    )
