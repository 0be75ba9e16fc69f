# One target per image: docker build --target lookup-svc -t ip-lookup/lookup-svc:0.1.0 .
# Images contain only a static binary and the CA certificates. docs/docker.md explains how to run them. The images of a
# release contain the programs of release/build.sh instead, which are optimized further.
# There is no `# syntax` line: BuildKit would download the parser that it names, and fail without network access.

ARG RUST_VERSION=1.95

# Static programs with glibc, whose memory functions are faster than musl's. Naming a target, even this machine's own,
# keeps the flags away from build scripts and macros; macros can't be static.
FROM rust:${RUST_VERSION}-slim AS compiler
ENV CARGO_BUILD_TARGET=host-tuple RUSTFLAGS=-Ctarget-feature=+crt-static
WORKDIR /src

# This stage has only the manifests, the lock file and empty sources. The build stages first compile the dependencies
# from these; Docker reuses those layers until a manifest or the lock file changes.
FROM compiler AS manifests
COPY . .
RUN find . -name '*.rs' -delete \
    && for manifest in */Cargo.toml crates/*/Cargo.toml; do \
         mkdir -p "${manifest%/*}/src" \
         && touch "${manifest%/*}/src/lib.rs" \
         && echo 'fn main() {}' > "${manifest%/*}/src/main.rs"; \
       done \
    && find . -type f ! -name Cargo.toml ! -name Cargo.lock ! -name '*.rs' -delete \
    && find . -type d -empty -delete

FROM compiler AS build
COPY --from=manifests /src .
RUN cargo build --profile dist --locked -p lookup-svc -p quota-svc -p dashboard-api
COPY . .
# Shown by --version; .dockerignore leaves out the git repository. Empty unless they are given.
ARG IP_LOOKUP_COMMIT= SOURCE_DATE_EPOCH=
# The copied sources may be older than the build of the empty ones. Cargo compares modification times, so without
# `touch` it would not rebuild them.
RUN find . -name '*.rs' -exec touch {} + \
    && cargo build --profile dist --locked -p lookup-svc -p quota-svc -p dashboard-api \
    && mkdir -p /programs /out/etc/ssl/certs \
    && cp target/*/dist/lookup-svc target/*/dist/quota-svc target/*/dist/dashboard-api /programs/ \
    && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/

# ip-lookup has its own stage, so that each target compiles only what it contains, and because in one command with the
# services cargo would build it with their features, such as the Kubernetes client.
FROM compiler AS build-ip-lookup
COPY --from=manifests /src .
RUN cargo build --profile dist --locked -p standalone
COPY . .
ARG IP_LOOKUP_COMMIT= SOURCE_DATE_EPOCH=
RUN find . -name '*.rs' -exec touch {} + \
    && cargo build --profile dist --locked -p standalone \
    && mkdir -p /programs /out/etc/ssl/certs /data \
    && cp target/*/dist/ip-lookup /programs/ \
    && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/

FROM scratch AS base
COPY --from=build /out/ /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PATH=/usr/local/bin
USER 65532:65532
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"

FROM base AS quota-svc
LABEL org.opencontainers.image.title="quota-svc" \
      org.opencontainers.image.description="Quota sidecar of the IP lookup API: accounts, keys, quotas and burst limits"
COPY --from=build /programs/quota-svc /usr/local/bin/
EXPOSE 9082
ENTRYPOINT ["/usr/local/bin/quota-svc"]

FROM base AS dashboard-api
LABEL org.opencontainers.image.title="dashboard-api" \
      org.opencontainers.image.description="Dashboard of the IP lookup API"
COPY --from=build /programs/dashboard-api /usr/local/bin/
EXPOSE 8081 9081
ENTRYPOINT ["/usr/local/bin/dashboard-api"]

FROM base AS lookup-svc
LABEL org.opencontainers.image.title="lookup-svc" \
      org.opencontainers.image.description="Public IP lookup API, with geo updater and self-test"
COPY --from=build /programs/lookup-svc /usr/local/bin/
EXPOSE 8080 9080
ENTRYPOINT ["/usr/local/bin/lookup-svc"]

FROM scratch AS ip-lookup
COPY --from=build-ip-lookup /out/ /
COPY --from=build-ip-lookup --chown=65532:65532 /data /data
COPY --from=build-ip-lookup /programs/ip-lookup /usr/local/bin/
# The ports are published on the host, which is "localhost" for whoever opens these URLs. The peer of such a request is
# Docker's bridge. It is not trusted (the default is loopback only): it would be any client that can reach the port.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PATH=/usr/local/bin \
    IP_LOOKUP_DATA_DIR=/data \
    IP_LOOKUP_LISTEN=[::]:8080 IP_LOOKUP_BASE_URL=http://localhost:8080 \
    IP_LOOKUP_DASHBOARD_LISTEN=[::]:8081 IP_LOOKUP_PUBLIC_URL=http://localhost:8081 \
    IP_LOOKUP_ADMIN_LISTEN=[::]:9080
USER 65532:65532
VOLUME /data
EXPOSE 8080 8081 9080
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.title="ip-lookup" \
      org.opencontainers.image.description="IP lookup API on one machine: public API, quotas and dashboard in one process"
ENTRYPOINT ["/usr/local/bin/ip-lookup"]
