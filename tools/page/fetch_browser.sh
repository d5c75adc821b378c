#!/bin/sh
# fetch_browser.sh FOLDER: what the page's tests need and no package of ours brings: Chromium where we
# may install it, and axe-core (MPL-2.0) for the accessibility check. What cannot be had is said, and
# the tests that need it skip.
set -eu
mkdir -p "$1"
if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        (timeout 120 apt-get update -qq && timeout 600 apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core) >/dev/null 2>&1 \
            || echo "chromium could not be installed; the page's tests skip"
    else
        echo "there is no chromium; install it to run the page's tests"
    fi
fi
if [ ! -e "$1/axe.min.js" ]; then
    if command -v npm >/dev/null && (cd "$1" && timeout 120 npm pack --silent axe-core@4 >/dev/null 2>&1); then
        tar xzf "$1"/axe-core-*.tgz -C "$1" --strip-components=1 package/axe.min.js package/LICENSE
        rm "$1"/axe-core-*.tgz
    else
        echo "axe-core could not be fetched with npm; the accessibility check skips"
    fi
fi
