"""Sends requests to a URL from several threads until /tmp/stop appears; fails if one was not answered with 200."""

import os
import sys
import threading
import urllib.request

THREADS = 4
answered = [0] * THREADS
lost = []


def send_requests(thread, url):
    while not os.path.exists("/tmp/stop"):
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                response.read()
            answered[thread] += 1
        except Exception as error:
            lost.append(str(error))


def main():
    threads = [threading.Thread(target=send_requests, args=(thread, sys.argv[1])) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(answered)} requests answered, {len(lost)} lost {lost[:3]}")
    sys.exit(1 if lost or not sum(answered) else 0)


main()
