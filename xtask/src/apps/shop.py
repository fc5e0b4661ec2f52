"""A small shop: counts orders in PostgreSQL, caches the count in Redis."""

import http.server
import os
import sys

import psycopg2
import redis

PASSWORD = os.environ["PASSWORD"]


def database():
    return psycopg2.connect(host="postgres.default", user="postgres", password=PASSWORD, dbname="postgres", connect_timeout=5)


class Shop(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with database() as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders DEFAULT VALUES")
            cursor.execute("SELECT count(*) FROM orders")
            count = cursor.fetchone()[0]
        redis.Redis("redis.default", password=PASSWORD, socket_timeout=5).set("orders", count)
        self.answer(f"order {count}")

    def do_GET(self):
        if self.path == "/healthz":
            return self.answer("ok")
        cached = redis.Redis("redis.default", password=PASSWORD, socket_timeout=5).get("orders") or b"0"
        self.answer(f"{cached.decode()} orders")

    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{text}\n".encode())


if sys.argv[1:] == ["migrate"]:
    with database() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS orders (id SERIAL PRIMARY KEY)")
else:
    http.server.ThreadingHTTPServer(("", 8080), Shop).serve_forever()
