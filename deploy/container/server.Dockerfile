# A loader server and its tools: docker build -f
# deploy/container/server.Dockerfile \
#   -t ballast-server:1.0.0 .      (from the top of the checkout)
# The image contains the Debian package, so it runs exactly what `apt-get
# install ./ballast_*.deb` installs on a Debian 12 machine.

FROM debian:12-slim AS build
WORKDIR /src
# Packages first: they change less often than the sources.
COPY deploy/setup.sh deploy/setup.sh
RUN deploy/setup.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN deploy/package.sh --only server --out /dist

FROM debian:12-slim
COPY --from=build /dist/*.deb /tmp/
# hadolint ignore=DL3008 # the package needs the versions of Debian 12
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/ballast-server_*.deb \
    && rm -rf /var/lib/apt/lists/* /tmp/*.deb \
    && groupadd --gid 10001 loader \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin loader
USER 10001:10001
# Health checks go over the socket of the configuration: `ballastctl health`.
EXPOSE 7070 9464
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/ballast-server"]
CMD ["serve", "--config", "/etc/ballast/ballast.yaml", "--log-format", "json"]
