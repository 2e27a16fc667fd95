// The console works without this file. It spares typing a code that already stands in the link.
"use strict";
(function () {
  var form = document.getElementById("sign-in-code");
  var link = /^#code=([A-Za-z0-9-]{1,64})$/.exec(window.location.hash);
  if (!link) return;
  // The code leaves the address bar and the history before anything else happens.
  window.history.replaceState(null, "", window.location.pathname + window.location.search);
  if (!form) return;
  form.elements.namedItem("code").value = link[1];
  form.submit();
})();
