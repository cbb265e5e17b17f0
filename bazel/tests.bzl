"""Rules for tests: python_test, trainers_test, ballast_benchmark and ballast_fuzz."""

load("//bazel:cc.bzl", "cc_binary", "cc_library", "cc_test")

# The package `ballast` and its library.
_SHIM = [
    "//trainer_shim/c_api:libballast_shim.so.1",
    "//trainer_shim/python:package",
]

def python_test(
        name,
        data = [],
        args = [],
        harness = True,
        module = None,
        shim = False,
        tags = [],
        **kwargs):
    """A test in Python, the module `name` of this package. Debian's Python runs it, the
    trainers' or BALLAST_PYTHON.

    Args:
        harness: whether it runs the programs, by tests/harness/tools.py.
        module: another than `name`.
        shim: whether it also imports the package `ballast` and loads its library, which
            no program with a sanitizer takes.
    """
    module = module or name
    native.sh_test(
        name = name,
        srcs = ["//tests:run_module.sh"],
        args = [native.package_name().replace("/", ".") + "." + module] + args,
        data = [
            module + ".py",
            "//tests:run_module.py",
        ] + (["//tests/harness"] if harness else []) + (_SHIM if shim else []) + data,
        tags = tags + (["no_sanitizer"] if shim else []),
        **kwargs
    )

def trainers_test(name, programs, requires, data = [], tags = [], **kwargs):
    """Programs in Python that want torch or trainers, one after another in forks of a process
    that has imported these. The Python that `deploy/setup.sh --trainers` made runs them, or
    BALLAST_PYTHON; tests/run_module.py has the rest. `--test_filter=PROGRAM` runs one alone.

    Args:
        programs: names of modules of this package, or of files with their arguments: a
            dictionary from name to what is run, None for the module.
        requires: the modules to import. Without one of them all programs are skipped.
    """
    package = native.package_name().replace("/", ".")
    args = ["--trainers", "--requires", ",".join(requires)]
    modules = []
    for program, line in programs.items():
        args += ["+", program] + (line or package + "." + program).split(" ")
        if not line and program + ".py" not in data:
            modules.append(program + ".py")
    native.sh_test(
        name = name,
        srcs = ["//tests:run_module.sh"],
        args = args,
        data = modules + [
            "//tests:run_module.py",
            "//tests/harness",
        ] + _SHIM + data,
        tags = tags + ["no_sanitizer"],
        **kwargs
    )

def ballast_benchmark(name, srcs, deps, data = [], measured_only = None, size = "small"):
    """A Google Benchmark binary and its smoke test.

        bazel run --config=opt //tests/benchmarks:NAME

    measures; the test NAME_smoke_test runs every benchmark for an instant, so that
    it keeps working. Names that match `measured_only` are left out: sizes that take
    minutes, of code that smaller sizes also run.
    """
    cc_library(
        name = name + "_runs",
        srcs = srcs,
        tags = ["benchmark"],
        deps = deps + ["//third_party:benchmark"],
        alwayslink = True,
    )
    cc_binary(
        name = name,
        data = data,
        tags = ["benchmark"],
        deps = [":" + name + "_runs"],
    )
    cc_test(
        name = name + "_smoke_test",
        size = size,
        args = ["--benchmark_min_time=0"] + (
            ["--benchmark_filter=-" + measured_only] if measured_only else []
        ),
        data = data,
        tags = ["benchmark"],
        deps = [":" + name + "_runs"],
    )

def ballast_fuzz(name, deps, seeds, runs = 4000, max_len = 65536, size = "small", srcs = None, **kwargs):
    """A fuzz target, run for a bounded time among the tests.

    The sources define LLVMFuzzerTestOneInput, as libFuzzer wants it, and nothing
    else of its main program.

        bazel test //tests/fuzz:NAME                  # a fixed sequence of mutations
        bazel test --config=asan //tests/fuzz:NAME    # the same, with AddressSanitizer
        bazel test --config=fuzz //tests/fuzz:NAME    # libFuzzer and AddressSanitizer
        bazel run --config=fuzz //tests/fuzz:NAME -- -runs=-1 -max_total_time=600 DIR

    The last goes on for ten minutes and keeps what it finds interesting in DIR.
    `--config=fuzz` needs clang.

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
        # Without a newline: libFuzzer takes it as part of the last name, and says nothing.
        cmd = "echo -n $(rootpaths %s) | tr ' ' ',' > $@" % seeds,
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
