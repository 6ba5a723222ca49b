// Keda-scaler is an external scaler of KEDA: it gives KEDA the size that the scale rule of
// a SKU advises. The metadata of a trigger names the SKU:
//
//	triggers:
//	- type: external-push
//	  metadata: {scalerAddress: "berth-keda-scaler:6000", sku: gpu-8}
//
// While the advice is unknown, for example because the registry is not ready, it answers
// with an error, and KEDA keeps the current size.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/rpc"
	"berth.dev/client"
)

var (
	listen   = flag.String("listen", "127.0.0.1:6000", "address to serve KEDA on, in plain text")
	gateways = flag.String("gateway", "127.0.0.1:8080", "addresses of gateways, separated by commas")
	poll     = flag.Duration("poll", 5*time.Second, "interval at which StreamIsActive reads the advice")
	ca       = flag.String("tls-ca", "", "PEM file of the authorities of the gateways; enables TLS")
	cert     = flag.String("tls-cert", "", "PEM file of a certificate with the role autoscaler")
	key      = flag.String("tls-key", "", "PEM file of the key of -tls-cert")
	token    = flag.String("token-file", "", "file with a bearer token with the role autoscaler")
)

func main() {
	flag.Parse()
	c, err := dial()
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving KEDA on %s", l.Addr())
	server := grpc.NewServer()
	externalscaler.RegisterExternalScalerServer(server, &scaler{berth: c})
	log.Fatal(server.Serve(l))
}

// dial returns a client. It reads certificate and token again when it uses them, so that
// they can be rotated.
func dial() (*client.Client, error) {
	var options []client.Option
	if *ca != "" {
		config, err := tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, client.WithTLS(config))
	}
	if *token != "" {
		options = append(options, client.WithToken(func(context.Context) (string, error) {
			text, err := os.ReadFile(*token)
			return strings.TrimSpace(string(text)), err
		}))
	}
	return client.Dial(strings.Split(*gateways, ","), options...)
}

func tlsConfig() (*tls.Config, error) {
	authorities, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("-tls-ca: %s has no certificate", *ca)
	}
	if *cert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(*cert, *key)
			return &pair, err
		}
	}
	return config, nil
}

// metric is the name of the only metric. Its target is 1 for each replica, so that the
// wanted number of replicas is the value of the metric.
const metric = "wantedSize"

// scaler answers KEDA.
type scaler struct {
	externalscaler.UnimplementedExternalScalerServer
	berth *client.Client
}

// wanted returns the advised size of the SKU in the metadata of a trigger.
func (s *scaler) wanted(ctx context.Context, object *externalscaler.ScaledObjectRef) (int32, error) {
	sku := object.GetScalerMetadata()["sku"]
	if sku == "" {
		return 0, status.Error(codes.InvalidArgument, "metadata.sku: must be the name of a SKU")
	}
	usage, err := s.berth.Usage(ctx, sku)
	if err != nil {
		return 0, rpc.ToStatus(err)
	}
	if len(usage.GetSkus()) == 0 {
		return 0, status.Errorf(codes.NotFound, "metadata.sku: no SKU %s is in the catalog or registered", sku)
	}
	return usage.GetSkus()[0].GetWantedSize(), nil
}

// IsActive reports whether KEDA may scale from 0.
func (s *scaler) IsActive(ctx context.Context,
	object *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	wanted, err := s.wanted(ctx, object)
	return &externalscaler.IsActiveResponse{Result: wanted > 0}, err
}

// StreamIsActive sends the answer of IsActive now and after every change.
func (s *scaler) StreamIsActive(object *externalscaler.ScaledObjectRef,
	stream grpc.ServerStreamingServer[externalscaler.IsActiveResponse]) error {
	tick := time.NewTicker(*poll)
	defer tick.Stop()
	for first, was := true, false; ; {
		now, err := s.IsActive(stream.Context(), object)
		if err != nil {
			return err
		}
		if first || now.GetResult() != was {
			if err := stream.Send(now); err != nil {
				return err
			}
			first, was = false, now.GetResult()
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// GetMetricSpec returns the metric and its target.
func (s *scaler) GetMetricSpec(context.Context,
	*externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	return &externalscaler.GetMetricSpecResponse{
		MetricSpecs: []*externalscaler.MetricSpec{{MetricName: metric, TargetSize: 1, TargetSizeFloat: 1}},
	}, nil
}

// GetMetrics returns the advised size.
func (s *scaler) GetMetrics(ctx context.Context,
	request *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	wanted, err := s.wanted(ctx, request.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	return &externalscaler.GetMetricsResponse{
		MetricValues: []*externalscaler.MetricValue{{
			MetricName: metric, MetricValue: int64(wanted), MetricValueFloat: float64(wanted),
		}},
	}, nil
}
