# The command line for recordings and plans, without Python: docker build -t stplan .
#   docker run --rm -v "$PWD:/data" stplan compile run.pickle.gz
# Jobs are recorded and served where their PyTorch is: RUN pip install stplan in its image.
FROM golang:1.26-bookworm AS build
WORKDIR /source
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY examples examples
COPY internal internal
COPY runtime runtime
RUN CGO_ENABLED=1 go build -trimpath -ldflags "-s -w" -o /stplan ./cmd/stplan
COPY packaging/licenses.py packaging/
RUN apt-get update && apt-get install -y --no-install-recommends python3
RUN python3 packaging/licenses.py /THIRD_PARTY_LICENSES.txt

FROM gcr.io/distroless/base-debian12:nonroot
COPY LICENSE NOTICE /licenses/
COPY --from=build /THIRD_PARTY_LICENSES.txt /licenses/
COPY --from=build /stplan /usr/bin/stplan
WORKDIR /data
ENTRYPOINT ["/usr/bin/stplan"]
