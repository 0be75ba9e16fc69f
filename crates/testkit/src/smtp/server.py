"""A mail server that requires TLS and a password: server.py MODE PORT CERT KEY OUTPUT

MODE is `smtp` (STARTTLS) or `smtps` (TLS from the start). Every message is appended to OUTPUT as a line of JSON.
"""
import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

mode, port, cert, key, output = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
starttls = mode == "smtp"


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("rejected@"):
            return f"550 5.1.1 no mailbox {address} on host-of-the-operator"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        headers = {name.lower(): value for name, value in message.items()}
        line = {"to": envelope.rcpt_tos, "headers": headers, "text": message.get_content()}
        with open(output, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    expected = LoginPassword(b"mailer@example.org", b"p\xc3\xa4ss:%41word")
    return AuthResult(success=data == expected)


def connection():
    return SMTP(
        Handler(),
        authenticator=authenticate,
        auth_required=True,
        auth_require_tls=starttls,
        require_starttls=starttls,
        tls_context=context if starttls else None,
    )


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", int(port), ssl=None if starttls else context)
    await server.serve_forever()


asyncio.run(main())
