// Kubernetes-autoscaler keeps the number of agents in a StatefulSet or ReplicaSet at the
// size that the scale rule of their SKU advises. It removes exactly the agents that it has
// claimed, so it interrupts no worker. The ID of each executor must be the name of its pod.
//
//	kubernetes-autoscaler -gateway berth-gateway:8080 -namespace berth -scale statefulset/berth-agent -sku gpu-8
//
// Run one process for each SKU. It needs the role autoscaler, and a service account that
// may list pods, get and update the StatefulSet or ReplicaSet and, for a ReplicaSet, patch
// pods.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"berth.dev/client"
)

var (
	gateways  = flag.String("gateway", "127.0.0.1:8080", "addresses of gateways, separated by commas")
	ca        = flag.String("tls-ca", "", "PEM file of the authorities of the gateways; enables TLS")
	cert      = flag.String("tls-cert", "", "PEM file of a certificate with the role autoscaler")
	key       = flag.String("tls-key", "", "PEM file of the key of -tls-cert")
	token     = flag.String("token-file", "", "file with a bearer token with the role autoscaler")
	namespace = flag.String("namespace", "berth", "namespace of the StatefulSet or ReplicaSet")
	scale     = flag.String("scale", "statefulset/berth-agent", "what to scale: statefulset/NAME or replicaset/NAME")
	sku       = flag.String("sku", "", "SKU of the agents; no other agents may have it")
	every     = flag.Duration("every", 10*time.Second, "interval at which the advice is read")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	berth, err := dial()
	if err != nil {
		return err
	}
	defer berth.Close()
	s := &scaler{kube: kube, berth: berth, namespace: *namespace, sku: *sku}
	var step func(context.Context) error
	switch kind, name, _ := strings.Cut(*scale, "/"); kind {
	case "statefulset":
		s.name, step = name, s.stepStatefulSet
	case "replicaset":
		s.name, step = name, s.stepReplicaSet
	default:
		return fmt.Errorf("-scale: must be statefulset/NAME or replicaset/NAME, got %q", *scale)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for {
		if err := step(ctx); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-time.After(*every):
		case <-ctx.Done():
			return nil
		}
	}
}

// dial returns a client. It reads certificate and token again when it uses them, so that
// they can be rotated.
func dial() (*client.Client, error) {
	var options []client.Option
	if *ca != "" {
		authorities, err := os.ReadFile(*ca)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("-tls-ca: %s has no certificate", *ca)
		}
		if cert, key := *cert, *key; cert != "" {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(cert, key)
				return &pair, err
			}
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
