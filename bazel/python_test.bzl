"""python_test: a test in Python, run by Debian's Python, the trainers' or BALLAST_PYTHON."""

def python_test(
        name,
        data = [],
        args = [],
        harness = True,
        module = None,
        shim = False,
        tags = [],
        trainers = False,
        **kwargs):
    """The module `name` of this package.

    Args:
        harness: whether it runs the programs, by tests/harness/tools.py.
        module: another than `name`.
        shim: whether it also imports the package `ballast` and loads its library, which
            no program with a sanitizer takes.
        trainers: whether it wants torch or transformers: the Python that `deploy/setup.sh
            --trainers` made runs it, where there is one.
    """
    module = module or name
    shim_data = [
        "//trainer_shim/c_api:libballast_shim.so.1",
        "//trainer_shim/python:package",
    ]
    native.sh_test(
        name = name,
        srcs = ["//tests:run_module.sh"],
        args = (["--trainers"] if trainers else []) + [native.package_name().replace("/", ".") + "." + module] + args,
        data = [
            module + ".py",
            "//tests:run_module.py",
        ] + (["//tests/harness"] if harness else []) + (shim_data if shim else []) + data,
        tags = tags + (["no_sanitizer"] if shim else []),
        **kwargs
    )
