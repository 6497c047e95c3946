package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"time"
)

// authority signs certificates for the time that the program runs.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority() (*authority, error) {
	a := &authority{pool: x509.NewCertPool()}
	c, err := a.sign("authority", true)
	if err != nil {
		return nil, err
	}
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a, nil
}

// sign makes a key and a certificate for name: the first, of the authority itself, is signed with its own key.
func (a *authority) sign(name string, isCA bool) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	parent, signer := a.cert, a.key
	if isCA {
		template.IsCA = true
		template.KeyUsage = x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// server is for a server that wants its clients to be known to the authority.
func (a *authority) server() (*tls.Config, error) {
	c, err := a.sign("server", false)
	return &tls.Config{Certificates: []tls.Certificate{c}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool}, err
}

// client is for a client of that name.
func (a *authority) client(name string) (*tls.Config, error) {
	c, err := a.sign(name, false)
	return &tls.Config{Certificates: []tls.Certificate{c}, RootCAs: a.pool, ServerName: "127.0.0.1"}, err
}
