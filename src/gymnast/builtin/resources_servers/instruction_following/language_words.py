"""Words that identify a language: short, frequent ones, and letters that similar languages lack. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LATIN: Final[Mapping[str, str]] = {
    "en": "the of and to in is that it for was on are as with his they at be this have from or had by but not what "
    "all were we when your can there an which their if will each about how up out them then she many some so "
    "these would her make like him into has more than been who its you i my me do did just should could "
    "because our us no yes hello",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más pero sus le ya o este sí "
    "porque esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante todos uno "
    "les ni contra otros ese eso ante ellos e esto mí antes algunos qué unos yo otro otras otra él tanto esa "
    "estos mucho está son",
    "pt": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem à "
    "seu sua ou ser quando muito há nos já está eu também só pelo pela até isso ela entre era depois sem "
    "mesmo aos ter seus quem nas me esse eles estão você tinha foram essa num nem suas meu às minha têm numa "
    "pelos elas havia seja qual são",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec son "
    "aux d l cette ou mais comme ont tout nous sa fait été aussi leur bien peut ces y deux elle être même on "
    "je vous entre sans c qu j s n très où donc leurs tous ses si quand car avoir était votre notre cela "
    "faire",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus "
    "er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber "
    "vor zur bis mehr durch man sein wurde sei ich wir kann schon wenn ihre ihr mich uns sehr hier diese "
    "dieser unter keine guten tag",
    "it": "di e il la che in un a per è una del non sono le i con si da come dei più al ma lo gli anche della alla "
    "nel se questo ha mi o ci delle dal su cui tra ed suo sua questa essere molto quando perché tutti ho io "
    "lei lui dalla fra loro dopo ancora sempre nella degli ai agli alle sul nei dove chi cosa così quello "
    "quella fatto può",
    "pl": "w i na z nie do się to jest że o jak a po co tak za ale od ma dla przez być jego czy są ten już tylko "
    "jej było tym może ich przed który która które pod gdy jako także oraz tego mi ja ty on ona my wy bardzo "
    "kiedy gdzie jednak więc ze te ta tej był była można bo aby",
    "vi": "và của là có không được cho một các với trong người những này khi đã để đến từ về như cũng ra vào làm "
    "nhiều sẽ tôi bạn rất trên năm lại đó nhưng thì nếu theo còn phải việc sau ông bà chúng ta anh chị em hay "
    "chỉ ở tại",
    "sw": "ya na wa kwa ni za katika la cha kuwa hii hiyo kama watu yake wake huo hizo lakini pia sana kila yao "
    "zaidi au baada kabla hapa huyu wote moja mimi wewe yeye sisi wao kwamba ambayo ambao wakati siku nchi "
    "kuna hakuna vya vile tu si bila kutoka hadi ili ndani juu mtu mwaka",
    "fi": "ja on ei se että oli hän en joka ovat mutta kun niin olla kuin myös mitä sen ole tai minä sinä me te he "
    "tämä tässä sitä jos voi vain nyt hänen sekä olen mukaan jo siitä siinä kaikki hyvin kanssa jälkeen ennen "
    "koska noin vielä olisi häntä minun sinun heidän vuoden päivä kuitenkin aina",
    "nl": "de het een en van ik te dat die in is niet zijn op aan met voor er maar om hem dan zou of wat mijn men "
    "dit zo door over ze zich bij ook tot je mij uit der daar haar naar heb hoe heeft hebben deze u want nog "
    "zal geen wordt",
    "sv": "och att det i en jag som är på för av med den inte till har de om ett han var men så vi kan från eller "
    "när hon ska skulle också mycket bara efter upp nu vad sig där över alla hade dem detta kommer andra mot "
    "vid finns",
    "tr": "ve bir bu da de için ile çok daha gibi ne o en olan olarak kadar ama her sonra ben sen biz siz onlar "
    "değil var yok mi mı şey ki ise diye bunu onu kendi iyi büyük hem veya ya nasıl neden şu zaman göre",
    "id": "yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena ada mereka kita kamu "
    "anda bisa oleh atau sudah telah lebih kami dia seperti hanya orang tahun hari sangat dapat adalah bahwa "
    "saat banyak",
}
LATIN_LETTERS: Final[Mapping[str, str]] = {
    "es": "ñ¿¡",
    "pt": "ãõ",
    "fr": "œùêâîûë",
    "de": "ß",
    "pl": "ąćęłńśźż",
    "vi": "ơưđăạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
    "sv": "å",
    "tr": "ğış",
}
CYRILLIC: Final[Mapping[str, str]] = {
    "ru": "и в не на я что он с как это по но они мы она так его за бы был только ещё еще для вы мне было меня от о "
    "из же если уже или ни быть когда даже ну вот вас нибудь опять уж вам ведь там потом себя ничего ей может "
    "тут где есть надо ней тебя их чем была сам чтоб без этот эта очень который которые также со все всё свой "
    "своим каждый каждое у к до во",
    "uk": "і в не на я що він з як це по але вони ми вона так його за би був тільки ще для ви мені було мене від о "
    "із же якщо вже або ні бути коли навіть ось вас знову там потім себе нічого їй може тут де є треба тебе "
    "їх ніж була щоб без цей ця дуже який які також та до у зі кожен кожного всі свій своїм",
    "bg": "и в не на аз че той с как това по но те ние тя така го за би беше само още вие ми ме от о из ако вече "
    "или са бъде когато дори ето ви пак там после себе си нищо може тук къде има трябва ги съм сме без този "
    "тази много който които също да се ще е към при до със във всички своя всяка всеки",
}
CYRILLIC_LETTERS: Final[Mapping[str, str]] = {
    "ru": "ыэё",
    "uk": "іїєґ",
    "bg": "ъ",
}
ARABIC: Final[Mapping[str, str]] = {
    "ar": "في من على إلى أن هذا هذه التي الذي كان كانت ما لا مع عن هو هي أو كل بعد قبل ذلك لم لن قد إن كما بين ثم "
    "أنا نحن أنت هم حيث عند حتى لكن يكون تكون إذا منذ غير",
    "fa": "از به در که این را با است برای آن یک خود تا بر هم نیز می‌شود شد شده کرد ما من تو او آنها اما اگر هر هیچ "
    "بود باید می دارد کند ها های یا همه چه بسیار پس بعد قبل دیگر",
    "ur": "کے میں کی ہے اور سے کا کو اس ہیں پر کہ یہ نے بھی ایک وہ تھا تھی تھے ہو کر نہیں لیے ساتھ جو گیا آپ ہم تم "
    "اپنے کیا تو ہی بہت جب تک کوئی سب",
}
ARABIC_LETTERS: Final[Mapping[str, str]] = {
    "ar": "ةيكىأإ",
    "fa": "پچژگ",
    "ur": "ٹڈڑںےہھ",
}
DEVANAGARI: Final[Mapping[str, str]] = {
    "hi": "है हैं के में की का को से और पर यह नहीं एक कि भी था थी थे ने लिए वह इस कर हो जो तो साथ अपने मैं हम आप "
    "बहुत लेकिन या जब तक सब कुछ क्या उस गया रहा ये वे",
    "mr": "आहे आहेत आणि च्या मध्ये ही हा हे तो ती ते नाही एक साठी होते होता होती आपण मी तुम्ही आम्ही पण किंवा जे जो "
    "त्या या त्यांच्या केले केली असे आपल्या खूप काही सर्व म्हणून पासून करून झाले असते",
    "ne": "छ छन् र को मा का लाई ले हो यो गर्न पनि भएको एक छैन थियो हुन् तर वा त्यो म हामी तपाईं उनी धेरै सबै गरेको "
    "गर्ने लागि बाट सँग हुन्छ भने आफ्नो केही कुनै गर्नुहोस् नेपाल तिनीहरू",
}
