# `albert serve` on a CPU:
#
#   docker build -t albert .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/runs/stars/model:/model:ro" albert
#
# Any other command takes the place of the last line: docker run --rm albert info albert-base
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --create-home --uid 10001 albert
WORKDIR /home/albert

# torch first: it is the largest, and a change of our own code leaves its layer as it is. The index of PyTorch has it
# without the libraries for GPUs.
COPY constraints.txt ./
RUN python -m pip install --index-url https://download.pytorch.org/whl/cpu \
    --extra-index-url https://pypi.org/simple -c constraints.txt torch

COPY pyproject.toml README.md LICENSE ./
COPY models ./models
COPY src ./src
RUN python -m pip install -c constraints.txt ".[serve]" && rm -rf models src

USER albert

EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]

# Inside a container loopback would reach nobody; -p 127.0.0.1:8000:8000 keeps it to this machine. Who comes by a name, as
# other services of Compose do, needs it allowed: docker run … albert serve /model --host 0.0.0.0 --allowed-host albert
ENTRYPOINT ["albert"]
CMD ["serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
