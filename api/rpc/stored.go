package rpc

import "google.golang.org/grpc/metadata"

// metaStored is the header of a stream of events that ends after the stored events. The gateways
// of version 0.1 do not send it: their streams do not end.
const metaStored = "berth-stored"

// StoredHeader returns the header of a stream of events; nil if the stream does not end.
func StoredHeader(ends bool) metadata.MD {
	if !ends {
		return nil
	}
	return metadata.Pairs(metaStored, "true")
}

// EndsAfterStored reports whether a stream of events with this header ends after the stored events.
func EndsAfterStored(header metadata.MD) bool { return len(header.Get(metaStored)) > 0 }
