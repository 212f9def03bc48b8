# hubbub's command with what a worker and a web server need; compose.yaml builds and runs it.
FROM python:3.12-slim

COPY . /source
RUN pip install --no-cache-dir "/source[cli,http,postgres,schedules]" \
    && useradd --create-home hubbub \
    && mkdir /agents \
    && cp -r /source/README.md /source/docs /agents/ \
    && rm -rf /source

# Modules of agents are found where the command runs: mount a folder there, or build on this image.
WORKDIR /agents
USER hubbub
ENTRYPOINT ["hubbub"]
