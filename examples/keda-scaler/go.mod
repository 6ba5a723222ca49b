module berth.dev/examples/keda-scaler

go 1.26.0

require (
	berth.dev/api v0.1.0
	berth.dev/client v0.0.0
	github.com/kedacore/keda/v2 v2.21.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.31.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
)

replace (
	berth.dev/api => ../../api
	berth.dev/client => ../../client
)
