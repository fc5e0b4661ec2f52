"""Writes increasing numbers to a database, and at the end compares what it holds with what it acknowledged.

A write whose connection broke may or may not have happened; one that was acknowledged must be there. Ends when /tmp/stop appears.
With `verify` it reads the output of an earlier run from standard input and compares the database with that.
"""

import os
import sys
import time

PASSWORD = os.environ["PASSWORD"]


class Sql:
    """PostgreSQL and MariaDB: one transaction per number."""

    def __init__(self, connect):
        self.connection = connect()
        self.cursor = self.connection.cursor()
        self.cursor.execute("CREATE TABLE IF NOT EXISTS ledger (run BIGINT, number BIGINT, PRIMARY KEY (run, number))")

    def write(self, run, number):
        self.cursor.execute("INSERT INTO ledger VALUES (%s, %s)", (run, number))
        self.connection.commit()

    def read(self, run):
        self.cursor.execute("SELECT number FROM ledger WHERE run = %s", (run,))
        return {row[0] for row in self.cursor.fetchall()}


class Redis:
    """Redis: one member of a set per number."""

    def __init__(self):
        import redis

        self.client = redis.Redis("redis", password=PASSWORD, socket_timeout=5, socket_connect_timeout=5)
        self.client.ping()

    def write(self, run, number):
        self.client.sadd(f"ledger-{run}", number)

    def read(self, run):
        return {int(member) for member in self.client.smembers(f"ledger-{run}")}


def postgres():
    import psycopg2

    return Sql(lambda: psycopg2.connect(
        host="postgres", user="postgres", password=PASSWORD, dbname="postgres", connect_timeout=5,
        options="-c statement_timeout=5000", keepalives_idle=2, keepalives_interval=2, keepalives_count=2,
        tcp_user_timeout=5000))


def mariadb():
    import pymysql

    return Sql(lambda: pymysql.connect(
        host="mariadb", user="app", password=PASSWORD, database="app", connect_timeout=5, read_timeout=5, write_timeout=5))


CONNECT = {"postgres": postgres, "mariadb": mariadb, "redis": Redis}[sys.argv[1]]


def compare(database, run, acknowledged, note):
    lost = acknowledged - database.read(run)
    print(f"{sys.argv[1]}: {len(acknowledged)} writes acknowledged, {len(lost)} lost{note}")
    sys.exit(1 if lost or not acknowledged else 0)


def verify():
    lines = [line.split() for line in sys.stdin]
    run = next(int(words[1]) for words in lines if words[0] == "run")
    compare(CONNECT(), run, {int(words[1]) for words in lines if words[0] == "acknowledged"}, " in a crash")


def write():
    run, number, acknowledged, breaks, database = int(time.time()), 0, set(), 0, None
    print(f"run {run}")
    while not os.path.exists("/tmp/stop"):
        number += 1
        try:
            database = database or CONNECT()
            database.write(run, number)
        except Exception as error:
            breaks += 1
            database = None
            print(f"broken {number}: {error}".splitlines()[0])
            time.sleep(0.2)
            continue
        acknowledged.add(number)
        print(f"acknowledged {number}")
        time.sleep(0.01)
    compare(database or CONNECT(), run, acknowledged, f", {breaks} attempts failed")


verify() if "verify" in sys.argv else write()
