"""Divides .cc files among a few that include them: cc.bzl says why.

    join_sources.py OUT... -- SOURCE...

Two files go to different OUTs where one has a name in its unnamed namespace that is a
word of the other: there the word would mean that name. Reads names at the
beginning of a line, as clang-format writes them. Fails where the OUTs are too few.
"""

import re
import sys

_TYPE = re.compile(r"(?:struct|class|enum class|enum|union)\s+(\w+)")
_OTHER = re.compile(r"(?:[\w:<>,*&\s()]*?[\s*&])??(\w+)\s*[(={\[;]")
_MACROS = re.compile(
    r"(?:INSTANTIATE_|TYPED_)?TEST\w*\(|BENCHMARK|static_assert|[\w:<>]+ \w+::~?\w+\("
)
_SAME = re.compile(r"using (\w+) =|namespace (\w+) =|using (?:enum )?(?:[\w:]*::)?(\w+);")


def names(path, text):
    """{name: its line if another file may repeat it, else the path}."""
    found, unnamed = {}, False
    for line in text.splitlines(keepends=True):
        same = _SAME.match(line)
        if same:
            found[next(filter(None, same.groups()))] = line.replace(" ::", " ")
        elif line.startswith("namespace {"):
            unnamed = True
        elif line.startswith("}  // namespace"):
            unnamed = False
        elif line.startswith("#define "):
            found[re.match(r"#define (\w+)", line)[1]] = line
        elif (unnamed or line.startswith("static ")) and line[0] not in " }/#\n:":
            if line.startswith("MATCHER"):
                found[re.match(r"\w+\((\w+)", line)[1]] = path
            elif not _MACROS.match(line):
                name = _TYPE.match(line) or _OTHER.match(line)
                if name and re.match("k?[A-Z]", name[1]):
                    found[name[1]] = path
    return found


def read(path):
    """(names, the words that may refer to another file's)."""
    with open(path, encoding="utf-8") as source:
        text = source.read()
    code = re.sub(r"//.*|\"(?:[^\"\\\n]|\\.)*\"", "", text)
    return names(path, text), set(re.findall(r"(?<![\w.:>])k?[A-Z]\w*", code))


def clash(one, other):
    """The names of unnamed namespaces that would mean something else if both were one file."""
    (own, words), (known, others) = one, other
    clashing = {name for name in own if name in others and known.get(name) != own[name]}
    return sorted(clashing | {n for n in known if n in words and own.get(n) != known[n]})


def main(outs, sources):
    of = {source: read(source) for source in sources}
    groups = [(({}, set()), []) for _ in outs]
    # Those that clash with most others first, each with the first that it fits: the
    # fewer the files, the fewer times the headers are read.
    most = {one: sum(bool(clash(of[one], of[two])) for two in sources) for one in sources}
    for source in sorted(sources, key=most.get, reverse=True):
        own, words = of[source]
        fits = [g for g in groups if not clash(of[source], g[0])]
        if not fits:
            sys.exit(
                "%s: has names in common with each of %d groups of files that are compiled as one: "
                "%s; rename them, or name the file in `apart`"
                % (source, len(outs), "; ".join(", ".join(clash(of[source], g[0])) for g in groups))
            )
        (known, others), files = fits[0]
        known.update(own)
        others |= words
        files.append(source)
    for out, (_, files) in zip(outs, groups):
        with open(out, "w", encoding="utf-8") as joined:
            joined.writelines('#include "%s"\n' % file for file in files)


if __name__ == "__main__":
    split = sys.argv.index("--")
    main(sys.argv[1:split], sys.argv[split + 1 :])
