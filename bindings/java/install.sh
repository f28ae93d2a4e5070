#!/usr/bin/env bash
# Builds the libraries for the JVM without running their tests, and puts them into Maven's local
# repository, where programs find them as org.runstone:runstone-java.
#   install.sh [options of Maven, such as -Dmaven.repo.local=DIRECTORY]
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

maven install -Dmaven.test.skip=true "$@"
ls "$here"/*/target/*.jar
