// SPDX-License-Identifier: Apache-2.0
// Nothing: the tests share the precompiled headers of the library that this file makes (tests/CMakeLists.txt).
