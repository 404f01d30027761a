// SPDX-License-Identifier: Apache-2.0
// The program attune, with its commands linked in; see ../main.cpp.
extern "C" int attune_program(int argc, char** argv);

int main(int argc, char** argv) { return attune_program(argc, argv); }
