"""The trainers with which the adapters of this version were tried."""

#: Distribution -> version, as deploy/trainers.txt installs them for the tests.
TRIED = {
    "accelerate": "1.15.0",
    "lightning": "2.6.6",
    "megatron-bridge": "0.6.2",
    "megatron-core": "0.19.2",
    "torch": "2.15.0",
    "transformers": "5.23.0",
    "trl": "1.16.0",
}
