#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Joins the shards' stores into FOLDER/site.db and pins the winners in FOLDER/site.pin: join.sh FOLDER
set -e
attune db merge "$1"/[0-9]*.db --store "$1/site.db"
attune pin "$1/site.pin" --store "$1/site.db"
