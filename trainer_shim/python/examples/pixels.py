"""Whose pixels an environment's processors make: the library, its version, and the value of
`model.resample` that belongs to it."""

import importlib.metadata

#: Distribution that resizes for each backend of transformers' image processors
#: (`processor.image_processor.backend`).
LIBRARIES = {"pil": "pillow", "torchvision": "torchvision"}
#: The library whose pixels each value of `model.resample` reproduces.
PIXELS = {
    "pillow12": "Pillow up to 12.3",
    "pillow13": "Pillow 13",
    "torchvision": "torchvision's antialiased resize on a CPU",
}


def versions():
    """{distribution: version} of the libraries that make or check pixels here; None:
    not installed."""
    found = {}
    for name in ("transformers", *LIBRARIES.values()):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def resample_of(backend, version):
    """The value of `model.resample` for a backend whose library has this version."""
    if backend == "torchvision":
        return "torchvision"
    return "pillow12" if int(version.split(".")[0]) <= 12 else "pillow13"


def difference(count, images, resample, backend, version):
    """A message for the case that the pixels of `count` of `images` images differ from
    a processor's.

    Args:
        resample: the job's `model.resample`.
        version: of the backend's library.
    """
    library = "%s %s" % (LIBRARIES[backend], version)
    wanted = resample_of(backend, version)
    said = (
        "pixel_values of %d of %d images differ: the job's model.resample: %s has the pixels of "
        "%s, and this environment's processors (backend %s) resize by %s"
        % (count, images, resample, PIXELS[resample], backend, library)
    )
    if resample != wanted:
        return said + ": set model.resample: %s (--resample %s checks it)" % (wanted, wanted)
    return said + (
        ", for which no other value is known: this version may resize in a new way. Take the "
        "version that docs/families.md names, and report the difference"
    )
