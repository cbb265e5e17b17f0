"""Runs the functions `image_plan` and `pixels` of a recipe (user_recipe.py)."""

import hashlib
import inspect
import struct

import ballast.recipe as recipe
from recipe_user import GAVE, Refusal, serve

PLAN = 4
COUNT, FACTS, OUTCOME = struct.Struct("=I"), struct.Struct("=3Q8I"), struct.Struct("=3I")
# One image in so many is made twice, and compared.
CHECKED = 64
# Sides of the images by which processes and servers compare what they make.
PROBED = ((64, 48), (336, 336), (640, 480), (480, 640), (1024, 300), (97, 1201), (1200, 800))
numpy = None


def takes_two(function):
    """Whether it has two parameters that must be given."""
    given = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(each.kind in given and each.default is each.empty for each in parameters) >= 2


class Image:
    """An image of a request: its facts, the key of its random numbers, and its promised plan."""

    def __init__(self, seed, epoch, ordinal, width, height, images, number, source, split):
        self.facts = recipe.ImageFacts(width, height, images, number, source, split)
        self.key = (seed, epoch, source, ordinal, number)
        self.is_checked = (ordinal + 7 * number + 13 * epoch) % CHECKED == 0


class Imager:
    FUNCTION = "a recipe"
    THING = "an image"

    def __init__(self, user):
        global numpy
        self.user = user
        self.image_plan, self.pixels = recipe._image_plan, recipe._pixels
        if self.image_plan is None and self.pixels is None:
            raise Refusal("it has no function with @recipe.image_plan or @recipe.pixels")
        self.draws = self.image_plan is not None and takes_two(self.image_plan)
        most = recipe._most_tokens
        if self.draws and (not isinstance(most, int) or most < 1):
            raise Refusal(
                "image_plan takes rng, so its sizes change by epoch; wanted @recipe.image_plan(most_tokens=N), the "
                "most placeholders that it gives an image"
            )
        if not self.draws and most is not None:
            raise Refusal(
                f"image_plan has most_tokens={most} and takes no rng; wanted plan(facts, rng)"
            )
        if self.pixels is not None:
            import numpy
            import numpy.random

    def facts(self):
        versions = []
        if self.image_plan is not None:
            versions.append("plans-" + self.probe(self.probe_plan))
        if self.pixels is not None:
            versions += ["numpy-" + numpy.__version__, "pixels-" + self.probe(self.probe_pixels)]
        return {
            "versions": versions,
            "plans": self.image_plan is not None,
            "draws": self.draws,
            "most_tokens": recipe._most_tokens or 0,
            "pixels": self.pixels is not None,
        }

    def probe(self, function):
        """A hash of what `function` makes of images that are the same in all processes."""
        digest = hashlib.blake2b(digest_size=8)
        for number, (width, height) in enumerate(PROBED):
            try:
                made = function(Image(0, number, number, width, height, 1, 0, "", "train"))
            except (Exception, SystemExit) as error:
                made = type(error).__name__.encode()
            digest.update(made)
        return digest.hexdigest()

    def probe_plan(self, image):
        return self.plan(image)[1].encode()

    def probe_pixels(self, image):
        if self.image_plan is None:
            plan = recipe.ImagePlan([(image.facts.height // 28 * 28, image.facts.width // 28 * 28)])
        else:
            plan = self.plan(image)[0]
        plan.facts = image.facts
        sides = image.facts.height, image.facts.width
        rows, columns, channels = numpy.ogrid[: sides[0], : sides[1], :3]
        rgb = (rows * 7 + columns * 3 + rows * columns // 5 + channels * 80) % 256
        return b"".join(self.make(image, plan, rgb.astype(numpy.uint8)))

    def plan(self, image):
        """The recipe's plan of an image, and the same as text."""
        arguments = (
            (image.facts, recipe.Random("image_plan", *image.key)) if self.draws else (image.facts,)
        )
        plan = self.image_plan(*arguments)
        if not isinstance(plan, recipe.ImagePlan):
            raise Refusal(f"image_plan gave a {type(plan).__name__}; wanted a recipe.ImagePlan")
        plan.facts = image.facts
        try:
            return plan, plan.encode()
        except (TypeError, ValueError) as error:
            raise Refusal(
                f"image_plan gave a plan that is not of numbers and texts: {error}"
            ) from error

    def run_plan(self, image):
        text = self.plan(image)[1]
        if self.plan(image)[1] != text:
            raise Refusal(
                "image_plan gave another plan of the same image the second time" + MUST_BE_PURE
            )
        return GAVE, text.encode(), b""

    def make(self, image, plan, rgb):
        """The bytes of the plan's crops."""
        crops = self.pixels(rgb, plan, recipe.Random("pixels", *image.key))
        if isinstance(crops, numpy.ndarray) and crops.ndim == 3:
            crops = [crops]
        if not isinstance(crops, (list, tuple, numpy.ndarray)):
            raise Refusal(f"pixels gave a {type(crops).__name__}; wanted a list of arrays")
        if len(crops) != len(plan.crops):
            raise Refusal(f"pixels gave {len(crops)} crops; the plan has {len(plan.crops)}")
        pieces = []
        for number, (crop, wanted) in enumerate(zip(crops, plan.crops)):
            found = (
                f"{crop.dtype} of {list(crop.shape)}"
                if isinstance(crop, numpy.ndarray)
                else f"a {type(crop).__name__}"
            )
            if found != f"uint8 of {[wanted.height, wanted.width, 3]}":
                raise Refusal(
                    f"pixels gave {found} as crop {number}; the plan has uint8 of {[wanted.height, wanted.width, 3]}"
                )
            pieces.append(crop.tobytes())
        return pieces

    def run_pixels(self, image, promised, rgb):
        if self.image_plan is None:
            plan = recipe.ImagePlan([crop[:2] for crop in recipe.json.loads(promised)["crops"]])
            plan.facts = image.facts
        else:
            plan, text = self.plan(image)
            if text != promised:
                raise Refusal(
                    f"image_plan gave {text} for an image that was scheduled with {promised}"
                    + MUST_BE_PURE
                )
        rgb = numpy.frombuffer(rgb, numpy.uint8).reshape(image.facts.height, image.facts.width, 3)
        pieces = self.make(image, plan, rgb.copy() if image.is_checked else rgb)
        if image.is_checked and self.make(image, plan, rgb) != pieces:
            raise Refusal(
                "pixels made other crops of the same image the second time" + MUST_BE_PURE
            )
        return GAVE, b"", pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def handle(self, kind, request):
        (count,) = COUNT.unpack_from(request)
        at = COUNT.size
        pieces = []
        for _ in range(count):
            *numbers, source_size, split_size, plan_size, pixel_size = FACTS.unpack_from(
                request, at
            )
            at += FACTS.size
            texts = []
            for size in (source_size, split_size, plan_size):
                texts.append(str(request[at : at + size], "utf-8", "replace"))
                at += size
            image = Image(*numbers, *texts[:2])
            if kind == PLAN:
                outcome, text, made = self.user.attempt(self.run_plan, 0, image)
            else:
                rgb = memoryview(request)[at : at + pixel_size]
                at += pixel_size
                outcome, text, made = self.user.attempt(
                    self.run_pixels, pixel_size, image, texts[2], rgb
                )
            pieces += (OUTCOME.pack(outcome, len(text), len(made)), text, made)
        return pieces


MUST_BE_PURE = ": a recipe must be pure; does it use the clock, random numbers other than rng, or images that it saw before?"

serve(Imager)
