package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// alertWait is how long a failed write waits for the reason, which the other end has sent before it closed
// the connection.
const alertWait = time.Second

// newTLS returns the credentials of a client whose failed writes return the alert of the other end. With TLS
// 1.3, the handshake of a client is over before a server refuses its certificate, and the first write often
// fails before the client has read why.
func newTLS(security *tls.Config) credentials.TransportCredentials {
	return alerting{credentials.NewTLS(security)}
}

type alerting struct {
	credentials.TransportCredentials
}

func (a alerting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo,
	error) {
	conn, info, err := a.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return alertConn{conn}, info, nil
}

func (a alerting) Clone() credentials.TransportCredentials {
	return alerting{a.TransportCredentials.Clone()}
}

type alertConn struct{ net.Conn }

func (c alertConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil || c.SetReadDeadline(time.Now().Add(alertWait)) != nil {
		return n, err
	}
	if _, alert := c.Read(make([]byte, 1)); alert != nil && RefusedCertificate(alert.Error()) != "" {
		return n, alert
	}
	return n, err
}
