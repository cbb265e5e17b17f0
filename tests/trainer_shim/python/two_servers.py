"""A drawn dataset behind two servers: one exchanges samples, one delivers direct."""

import ballast
from tests.integration.command_line import tools

DP = {"vision": 2, "language": 4}
STEPS = 3


class TwoServersTest(tools.CorpusTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.address = "unix:" + cls.folder + "/a.sock"
        cls.direct_address = "unix:" + cls.folder + "/b.sock"
        with open(cls.config, encoding="utf-8") as file:
            direct = file.read().replace("balance:", "balance:\n  delivery: direct")
        cls.direct_config = cls.folder + "/direct.yaml"
        with open(cls.direct_config, "w", encoding="utf-8") as file:
            file.write(direct)
        configs = ((cls.config, cls.address), (cls.direct_config, cls.direct_address))
        for path, address in configs:
            context = cls().server(path, address)
            context.__enter__()
            cls.addClassCleanup(context.__exit__, None, None, None)

    def direct(self, module="language", rank=0, **options):
        """A loader of the server that delivers direct."""
        return self.loader(self.direct_address, module, rank, **options)

    def loader(self, address, module, rank, **options):
        options.setdefault("steps", STEPS)
        return ballast.Loader(
            address, module, dp_rank=rank, device="cpu", array="numpy", **options
        )
