# The parts of Ballast that a trainer's image needs: the shim, its Python
# package and the client tools. docker build -f
# deploy/container/trainer.Dockerfile \
#   -t ballast-trainer:1.0.0 .     (from the top of the checkout)
#
# BASE is Debian 12 with Python 3.11, like the libraries that the package is
# linked with. PyTorch comes from its own wheels, which bring CUDA and NCCL. For
# an image of another system use the relocatable tarball (docs/deployment.md).
ARG BASE=python:3.11-slim-bookworm

FROM debian:12-slim AS build
# The CUDA compiler, for kernels; PyTorch's wheels bring the libraries.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl \
    && curl --fail --silent --show-error --location --output /tmp/keyring.deb \
        https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb \
    && apt-get install -y --no-install-recommends /tmp/keyring.deb \
    && apt-get update \
    && apt-get install -y --no-install-recommends \
        cuda-nvcc-13-0 cuda-cudart-dev-13-0 libnccl-dev \
    && rm -rf /var/lib/apt/lists/* /tmp/keyring.deb
WORKDIR /src
COPY deploy/setup.sh deploy/setup.sh
RUN deploy/setup.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN deploy/package.sh --cuda --out /dist

# hadolint ignore=DL3006 # BASE has its tag above
FROM ${BASE}
COPY --from=build /dist/*.deb /tmp/
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/ballast_*.deb \
    && rm -rf /var/lib/apt/lists/* /tmp/*.deb \
    # It holds FFmpeg; a trainer starts no server.
    && rm /usr/bin/ballast-server \
    && groupadd --gid 10002 trainer \
    && useradd --uid 10002 --gid 10002 --create-home --shell /usr/sbin/nologin trainer
ARG TORCH=2.11.0
RUN pip install --no-cache-dir "torch==${TORCH}"
USER 10002:10002
WORKDIR /home/trainer
CMD ["ballast-rank", "--help"]
