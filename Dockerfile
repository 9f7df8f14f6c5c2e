# syntax=docker/dockerfile:1
# The service and its command line, at the versions of uv.lock.
#   docker build -t tarnlog .
#   docker run -p 127.0.0.1:8420:8420 -v tarnlog:/data -e TARNLOG_API_KEYS='[...]' tarnlog
# The container listens on every interface, so it refuses to start without keys; docker-compose.yml shows how to make one.

FROM python:3.12-slim AS build
ENV UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PROJECT_ENVIRONMENT=/opt/tarnlog \
    UV_PYTHON=/usr/local/bin/python3 \
    UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir "uv>=0.9"
WORKDIR /src

# Dependencies change less often than the code: they get a layer of their own.
COPY pyproject.toml uv.lock ./
COPY client/pyproject.toml client/
COPY service/pyproject.toml service/
COPY spark_connector/pyproject.toml spark_connector/
RUN uv sync --locked --no-dev --no-install-workspace

COPY LICENSE ./
COPY client client
COPY migrations migrations
COPY service service
RUN uv sync --locked --no-dev --no-editable

FROM python:3.12-slim
LABEL org.opencontainers.image.title="tarnlog" \
      org.opencontainers.image.description="A coordinator for transactional tables on object storage" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin tarnlog \
    && install -d -o tarnlog -g tarnlog /data
COPY --from=build /opt/tarnlog /opt/tarnlog
COPY LICENSE /opt/tarnlog/LICENSE
ENV PATH=/opt/tarnlog/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TARNLOG_HOST=0.0.0.0 \
    TARNLOG_PORT=8420 \
    TARNLOG_WAREHOUSE=/data
USER tarnlog
WORKDIR /data
VOLUME /data
EXPOSE 8420
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['TARNLOG_PORT'] + '/v1/health/live', timeout=4)"]
ENTRYPOINT ["tarnlog"]
CMD ["serve"]
