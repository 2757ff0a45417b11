// What the load tells its runner: failures end here. An mprotect at an address that nobody else
// uses, which changes nothing.
#pragma once

#define FAULTS_MARKER 0x68616b0000
