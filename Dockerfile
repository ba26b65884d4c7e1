# slicegraph with all commands:
#   docker build -t slicegraph .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" slicegraph check my.csv
# With --build-arg PIP_EXTRA_INDEX_URL=... (PyTorch's index of CPU wheels) the image has no CUDA and is
# smaller. For NVIDIA GPUs: docker run --gpus all ...
FROM python:3.12-slim AS build

# The C++ kernels are compiled here; the compiler is not in the final image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

ARG PIP_EXTRA_INDEX_URL=
RUN python -m venv /opt/slicegraph
WORKDIR /source
COPY . .
RUN /opt/slicegraph/bin/pip install --no-cache-dir -c constraints.txt ".[all]" \
    && /opt/slicegraph/bin/python -c \
        "from slicegraph.ops.operator import problem; assert problem('cpu', 'cpu') is None"

FROM python:3.12-slim

# RDKit draws molecules with these.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libexpat1 libxext6 libxrender1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 slicegraph \
    && install -d -o slicegraph -g slicegraph /work

COPY --from=build /opt/slicegraph /opt/slicegraph
# Any user can write the cache of prepared tables and of matplotlib's fonts.
ENV PATH=/opt/slicegraph/bin:$PATH \
    SLICEGRAPH_CACHE=/tmp/slicegraph \
    MPLCONFIGDIR=/tmp/matplotlib
USER 1000
WORKDIR /work
ENTRYPOINT ["slicegraph"]
CMD ["--help"]
