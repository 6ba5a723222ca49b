// Package recordv1 has the records that Berth stores in etcd, and changes only by added
// fields. So old and new replicas can read each other's records.
//
// The source is record.proto in this directory. pkg/keyspace defines the keys of the
// records, and pkg/wire converts between the records and the types of pkg/model.
package recordv1
